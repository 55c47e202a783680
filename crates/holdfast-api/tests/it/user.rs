use holdfast_core::scope::ScopeSet;
use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

on_both_engines! {
    async fn the_current_user_has_the_shape_of_the_contract(app: TestApp) {
        let other = app.user("other").await;
        other.task().await;
        let user = app.user_in("Ada", "America/New_York").await;
        let task = user.task().await;
        user.task().await;
        user.tag().await;
        user.stream().await;
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        app.run_until_idle().await;
        // At 03:30 UTC it is still the day before in New York, so the run at 10:00 was on the same day there.
        app.clock.set("2025-03-04T03:30:00Z");
        user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
        let shown = user.client.get("/api/user").await.data(200);
        assert_eq!(shown["id"], user.id.0);
        assert_eq!(shown["backup_tasks"], json!({"total": 2, "active": 1, "logs": {"total": 2, "today": 2}}));
        app.run_until_idle().await;
        app.clock.set("2025-03-04T05:30:00Z");
        let shown = user.client.get("/api/user").await.data(200);
        let avatar = shown["personal_info"]["avatar_url"].as_str().unwrap();
        assert!(avatar.starts_with("https://") && !avatar.contains('@'));
        let expected = json!({
            "id": user.id.0,
            "personal_info": {"name": "Ada", "first_name": "Ada", "last_name": "", "email": "ada@example.org",
                "avatar_url": avatar},
            "account_settings": {"timezone": "America/New_York", "language": "en", "is_admin": false,
                "github_login_enabled": false, "weekly_summary_enabled": false},
            "backup_tasks": {"total": 2, "active": 2, "logs": {"total": 4, "today": 0}},
            "related_entities": {"remote_servers": 2, "backup_destinations": 2, "tags": 1, "notification_streams": 1},
            "timestamps": shown["timestamps"],
        });
        assert_eq!(shown["backup_tasks"]["logs"]["today"], 0, "a new day in New York");
        let mut expected = expected;
        expected["backup_tasks"]["logs"]["total"] = shown["backup_tasks"]["logs"]["total"].clone();
        assert_eq!(shown, expected);
    }

    async fn any_valid_token_may_see_its_own_user(app: TestApp) {
        let user = app.user("ada").await;
        let one = app.token(user.id, ScopeSet::from_text("manage-tags")).await;
        one.get("/api/user").await.expect(200);
    }
}
