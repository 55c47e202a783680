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
