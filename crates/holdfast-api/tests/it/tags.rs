use holdfast_core::tag::TagDraft;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::{Value, json};

on_both_engines! {
    async fn a_tag_lives_from_create_to_delete(app: TestApp) {
        let user = app.user("ada").await;
        let body = json!({"label": "  prod ", "description": "what matters", "colour": "#ff8800"});
        let tag = user.client.post("/api/tags", body).await.data(201);
        assert_eq!(tag["label"], "prod");
        assert_eq!(tag["user_id"], user.id.0);
        assert_eq!(tag["created_at"], tag["updated_at"]);
        let path = format!("/api/tags/{}", tag["id"]);
        assert_eq!(user.client.get(&path).await.data(200), tag);

        let updated = user.client.put(&path, json!({"description": null, "id": 7, "user_id": 7})).await.data(200);
        assert_eq!(updated["description"], Value::Null);
        assert_eq!((&updated["label"], &updated["colour"], &updated["id"]), (&tag["label"], &tag["colour"], &tag["id"]));
        assert!(updated["updated_at"].as_str() > tag["updated_at"].as_str());
        let again = user.client.send(reqwest::Method::PATCH, &path, Some("{}".into())).await.data(200);
        assert!(again["updated_at"].as_str() > updated["updated_at"].as_str(), "it always moves forward");

        assert_eq!(user.client.delete(&path).await.expect(200), json!({"message": "Tag successfully deleted"}));
        user.client.get(&path).await.expect(404);
    }

    async fn a_label_has_no_hidden_characters_unless_it_had_them_before(app: TestApp) {
        let user = app.user("ada").await;
        let fine = user.client.post("/api/tags", json!({"label": "שרת 👩\u{200d}👧"})).await.id(201);
        for hidden in ['\u{202e}', '\u{2066}', '\u{200f}', '\u{61c}', '\u{200b}', '\u{feff}'] {
            let body = json!({"label": format!("nightly{hidden}txt")});
            let message = "The label field must not contain invisible characters or ones that change the direction of text.";
            for path in ["/api/tags", "/api/remote-servers", "/api/backup-destinations", "/api/notification-streams"] {
                assert_eq!(user.client.post(path, body.clone()).await.error_of("label"), message);
            }
            let changed = user.client.put(&format!("/api/tags/{fine}"), body).await;
            assert_eq!(changed.error_of("label"), message);
        }
        // What an earlier version accepted can still be sent as it is.
        let old = "old\u{202e}label";
        let mut tx = app.app.store.begin().await.unwrap();
        let draft = TagDraft { label: old.into(), description: None, colour: None };
        let id = holdfast_store::tags::insert(&mut tx, user.id, &draft, app.app.now()).await.unwrap();
        tx.commit().await.unwrap();
        let body = json!({"label": old, "description": "new"});
        assert_eq!(user.client.put(&format!("/api/tags/{id}"), body).await.data(200)["label"], old);
    }

    async fn deleting_a_tag_removes_it_from_its_tasks(app: TestApp) {
        let user = app.user("ada").await;
        let tag = user.tag().await;
        let mut body = user.task_body().await;
        body["tag_ids"] = json!([tag]);
        let task = user.client.post("/api/backup-tasks", body).await.data(201);
        assert_eq!(task["tag_ids"], json!([tag]));
        user.client.delete(&format!("/api/tags/{tag}")).await.expect(200);
        let task = user.client.get(&format!("/api/backup-tasks/{}", task["id"])).await.data(200);
        assert_eq!(task["tag_ids"], json!([]));
    }
}
