use holdfast_core::user::UserDraft;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::{Value, json};

fn labels(page: &Value) -> Vec<&str> {
    page["data"].as_array().unwrap().iter().map(|item| item["label"].as_str().unwrap()).collect()
}

on_both_engines! {
    async fn search_finds_letters_however_they_are_composed(app: TestApp) {
        let user = app.user("ada").await;
        for label in ["K\u{fc}che", "Ku\u{308}che zwei", "Kuche"] {
            user.client.post("/api/tags", json!({"label": label})).await.expect(201);
        }
        for search in ["k\u{fc}", "ku\u{308}"] {
            let found = user.client.get(&format!("/api/tags?search={search}")).await.expect(200);
            assert_eq!(labels(&found), ["K\u{fc}che", "Ku\u{308}che zwei"], "stored as they were sent");
        }
    }

    async fn the_list_envelope_matches_the_contract(app: TestApp) {
        let user = app.user("ada").await;
        for number in 1..=35 {
            user.client.post("/api/tags", json!({"label": format!("tag {number:02}")})).await.expect(201);
        }
        let first = user.client.get("/api/tags").await.expect(200);
        assert_eq!(first["data"].as_array().unwrap().len(), 15);
        let url = |page: i64| format!("{}/api/tags?page={page}", app.base_url);
        assert_eq!(first["links"], json!({"first": url(1), "last": url(3), "prev": null, "next": url(2)}));
        let meta = json!({"current_page": 1, "from": 1, "to": 15, "last_page": 3, "per_page": 15, "total": 35,
            "path": format!("{}/api/tags", app.base_url), "next_cursor": first["meta"]["next_cursor"]});
        assert_eq!(first["meta"], meta);
        assert!(first["meta"]["next_cursor"].is_string());
        let last = user.client.get("/api/tags?page=3").await.expect(200);
        assert_eq!((&last["meta"]["from"], &last["meta"]["to"]), (&json!(31), &json!(35)));
        assert_eq!(last["links"]["next"], Value::Null);
        let past = user.client.get("/api/tags?page=9").await.expect(200);
        assert_eq!((&past["data"], &past["meta"]["from"], &past["meta"]["to"]), (&json!([]), &Value::Null, &Value::Null));
        assert_eq!(past["meta"]["total"], 35);
        let kept = user.client.get("/api/tags?search=tag&per_page=2&x=%26y").await.expect(200);
        let next = kept["links"]["next"].as_str().unwrap();
        assert_eq!(next, format!("{}/api/tags?search=tag&per_page=2&x=%26y&page=2", app.base_url));
        let clamped = user.client.get("/api/tags?per_page=5000").await.expect(200);
        assert_eq!((&clamped["meta"]["per_page"], clamped["data"].as_array().unwrap().len()), (&json!(100), 35));
        for bad in ["page=0", "page=x", "per_page=0", "per_page=-1", "per_page=1.5", "per_page="] {
            user.client.get(&format!("/api/tags?{bad}")).await.expect(422);
        }
        let empty = app.user("bob").await.client.get("/api/tags").await.expect(200);
        assert_eq!((&empty["meta"]["last_page"], &empty["meta"]["from"]), (&json!(1), &Value::Null));
    }

    async fn search_is_case_insensitive_and_takes_wildcards_literally(app: TestApp) {
        let user = app.user("ada").await;
        for label in ["Äpfel 100%", "birnen", "snake_case", "back\\slash"] {
            user.client.post("/api/tags", json!({"label": label})).await.expect(201);
        }
        let find = async |text: &str| {
            let page = user.client.get(&format!("/api/tags?search={text}")).await.expect(200);
            labels(&page).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(find("%C3%A4PFEL").await, ["Äpfel 100%"]);
        assert_eq!(find("%25").await, ["Äpfel 100%"]);
        assert_eq!(find("_").await, ["snake_case"]);
        assert_eq!(find("%5C").await, ["back\\slash"]);
        assert_eq!(find("nothing").await, Vec::<String>::new());
        user.client.get("/api/tags?search=%00").await.expect(422);
    }

    async fn every_list_can_be_searched(app: TestApp) {
        let user = app.user("ada").await;
        user.task().await;
        user.stream().await;
        for path in ["backup-tasks", "remote-servers", "backup-destinations", "notification-streams"] {
            let all = user.client.get(&format!("/api/{path}")).await.expect(200);
            assert_eq!(all["meta"]["total"], 1, "{path}");
            let none = user.client.get(&format!("/api/{path}?search=zzz")).await.expect(200);
            assert_eq!(none["meta"]["total"], 0, "{path}");
        }
    }

    async fn tasks_can_be_filtered(app: TestApp) {
        let user = app.user("ada").await;
        let (tag, first, second) = (user.tag().await, user.task().await, user.task().await);
        let path = format!("/api/backup-tasks/{first}");
        let body = json!({"tag_ids": [tag], "type": "database", "label": "first"});
        let task = user.client.put(&path, body).await.data(200);
        user.client.act(&format!("/api/backup-tasks/{second}/run")).await.expect(202);
        let find = async |query: String| {
            let page = user.client.get(&format!("/api/backup-tasks?{query}")).await.expect(200);
            let ids = page["data"].as_array().unwrap().iter().map(|task| task["id"].as_i64().unwrap());
            assert_eq!(page["meta"]["total"], page["data"].as_array().unwrap().len());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(find(format!("tag_id={tag}")).await, [first]);
        assert_eq!(find("type=files".into()).await, [second]);
        assert_eq!(find("status=running".into()).await, [second]);
        assert_eq!(find("status=ready&search=FIRST".into()).await, [first]);
        assert_eq!(find(format!("remote_server_id={}", task["remote_server_id"])).await, [first]);
        assert_eq!(find(format!("backup_destination_id={}", task["backup_destination_id"])).await, [first]);
        let past = user.client.get("/api/backup-tasks?type=files&page=5").await.expect(200);
        assert_eq!(past["meta"]["total"], 1);
        for bad in ["status=paused", "type=tape", "tag_id=x"] {
            user.client.get(&format!("/api/backup-tasks?{bad}")).await.expect(422);
        }
    }

    async fn a_thousand_users_see_their_own_alone(app: TestApp) {
        let now = app.app.now();
        let mut tx = app.app.store.begin().await.unwrap();
        for number in 0..998 {
            let draft = UserDraft::check("X", &format!("x{number}@example.org"), "UTC", false).unwrap();
            let id = holdfast_store::users::insert(&mut tx, &draft, None, now).await.unwrap();
            let tag = holdfast_core::tag::TagDraft { label: "theirs".into(), description: None, colour: None };
            holdfast_store::tags::insert(&mut tx, id, &tag, now).await.unwrap();
        }
        tx.commit().await.unwrap();
        let (ada, bob) = (app.user("ada").await, app.user("bob").await);
        for user in [&ada, &bob] {
            user.task().await;
            user.stream().await;
            user.tag().await;
        }
        ada.client.act(&format!("/api/backup-tasks/{}/run", ada.task().await)).await.expect(202);
        let paths = ["backup-tasks", "remote-servers", "backup-destinations", "notification-streams", "tags",
            "backup-task-logs"];
        for path in paths {
            for user in [&ada, &bob] {
                let page = user.client.get(&format!("/api/{path}?per_page=100")).await.expect(200);
                let items = page["data"].as_array().unwrap();
                assert_eq!(page["meta"]["total"], items.len(), "{path}");
                assert!(items.iter().all(|item| item.get("user_id").is_none_or(|id| *id == user.id.0)), "{path}");
            }
        }
        assert_eq!(bob.client.get("/api/backup-task-logs").await.expect(200)["meta"]["total"], 0);
        assert_eq!(bob.client.get("/api/backup-tasks/upcoming").await.data(200).as_array().unwrap().len(), 1);
        assert_eq!(ada.client.get("/api/backup-tasks/upcoming").await.data(200).as_array().unwrap().len(), 2);
        assert_eq!(bob.client.get("/api/user").await.data(200)["related_entities"]["tags"], 1);
    }

    async fn a_walk_by_cursor_misses_nothing_and_repeats_nothing(app: TestApp) {
        let user = app.user("ada").await;
        let mut ids = Vec::new();
        for number in 0..23 {
            // Labels repeat, so that the order needs the ids, too.
            let label = format!("tag {}", number % 3);
            ids.push(user.client.post("/api/tags", json!({"label": label})).await.id(201));
            app.clock.advance_secs(1);
        }
        for (sort, is_descending) in
            [("id", false), ("-id", true), ("created_at", false), ("-created_at", true), ("label", false)]
        {
            let mut address = format!("/api/tags?per_page=5&sort={sort}");
            let mut seen = Vec::new();
            loop {
                let page = user.client.get(&address).await.expect(200);
                let items = page["data"].as_array().unwrap();
                seen.extend(items.iter().map(|item| (item["label"].clone(), item["id"].as_i64().unwrap())));
                let Some(next) = page["meta"]["next_cursor"].as_str() else {
                    assert_eq!(page["links"]["next"], Value::Null);
                    break;
                };
                let link = page["links"]["next"].as_str().unwrap();
                if address.contains("cursor=") {
                    assert_eq!(page["meta"].get("total"), None, "totals cost time");
                    assert!(link.contains(next), "{link}");
                } else {
                    assert_eq!(page["meta"]["total"], 23);
                }
                address = format!("/api/tags?per_page=5&sort={sort}&cursor={next}");
            }
            let mut wanted = seen.clone();
            if sort == "label" {
                wanted.sort_by(|a, b| (a.0.as_str(), a.1).cmp(&(b.0.as_str(), b.1)));
            } else {
                wanted.sort_by_key(|(_, id)| if is_descending { -id } else { *id });
            }
            assert_eq!(seen, wanted, "{sort}");
            assert_eq!(seen.len(), ids.len(), "{sort}");
        }
    }

    async fn a_walk_by_cursor_goes_on_while_rows_are_deleted(app: TestApp) {
        let user = app.user("ada").await;
        let mut ids = Vec::new();
        for number in 0..20 {
            ids.push(user.client.post("/api/tags", json!({"label": format!("tag {number}")})).await.id(201));
        }
        let mut page = user.client.get("/api/tags?per_page=4").await.expect(200);
        let mut seen: Vec<i64> = Vec::new();
        loop {
            let found: Vec<i64> = page["data"].as_array().unwrap().iter().map(|item| item["id"].as_i64().unwrap()).collect();
            seen.extend(&found);
            // Everything that was shown goes, as when retention deletes while a client reads.
            for id in &found {
                user.client.delete(&format!("/api/tags/{id}")).await.expect(200);
            }
            let Some(next) = page["meta"]["next_cursor"].as_str() else { break };
            page = user.client.get(&format!("/api/tags?per_page=4&cursor={next}")).await.expect(200);
        }
        assert_eq!(seen, ids);
    }

    async fn lists_are_narrowed_by_time_and_refuse_odd_parameters(app: TestApp) {
        let user = app.user("ada").await;
        let first = user.client.post("/api/tags", json!({"label": "first"})).await.data(201);
        app.clock.advance_secs(60);
        let second = user.client.post("/api/tags", json!({"label": "second"})).await.data(201);
        let find = async |query: String| {
            let page = user.client.get(&format!("/api/tags?{query}")).await.expect(200);
            assert_eq!(page["meta"]["total"], page["data"].as_array().unwrap().len());
            labels(&page).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let after = first["created_at"].as_str().unwrap().to_owned();
        assert_eq!(find(format!("created_after={after}")).await, ["second"]);
        assert_eq!(find("created_after=2000-01-01T00:00:00%2B02:00".into()).await, ["first", "second"]);
        app.clock.advance_secs(60);
        user.client.put(&format!("/api/tags/{}", first["id"]), json!({"label": "renamed"})).await.expect(200);
        let seen = second["updated_at"].as_str().unwrap();
        assert_eq!(find(format!("updated_after={seen}")).await, ["renamed"]);
        for path in ["backup-tasks", "remote-servers", "backup-destinations", "notification-streams", "tags",
            "backup-task-logs", "backups", "runs", "notices"] {
            let query = format!("created_after={after}&updated_after={after}&sort=-created_at&per_page=1");
            user.client.get(&format!("/api/{path}?{query}")).await.expect(200);
            for bad in ["sort=size", "created_after=yesterday", "cursor=x", "sort=created_at&cursor=eyJpZCI6MX0"] {
                user.client.get(&format!("/api/{path}?{bad}")).await.expect(422);
            }
        }
        user.client.get("/api/backups?sort=label").await.expect(422);
    }

    /// The same number means something else there, and the walk would miss rows.
    async fn a_cursor_of_another_list_is_refused(app: TestApp) {
        let user = app.user("ada").await;
        for _ in 0..2 {
            user.task().await;
        }
        let first = user.client.get("/api/remote-servers?per_page=1&sort=id").await.expect(200);
        let cursor = first["meta"]["next_cursor"].as_str().unwrap();
        let page = user.client.get(&format!("/api/remote-servers?per_page=2&cursor={cursor}")).await.expect(200);
        assert_eq!(page["data"].as_array().unwrap().len(), 1, "the order is the default, and pages differ in size");
        for other in ["backup-tasks?", "backup-destinations?", "backup-task-logs?", "remote-servers?sort=-id&"] {
            let refused = user.client.get(&format!("/api/{other}cursor={cursor}")).await;
            assert!(refused.error_of("cursor").contains("a response to the same request"), "{other}");
        }
    }
}
