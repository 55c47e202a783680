use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

on_both_engines! {
    async fn logs_are_listed_shown_filtered_and_deleted(app: TestApp) {
        let user = app.user("ada").await;
        let (first, second) = (user.task().await, user.task().await);
        for task in [first, second, first] {
            user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
            app.run_until_idle().await;
        }
        user.client.act(&format!("/api/backup-tasks/{second}/run")).await.expect(202);
        let all = user.client.get("/api/backup-task-logs").await.expect(200);
        assert_eq!(all["meta"]["total"], 4);
        let total = async |query: &str| {
            user.client.get(&format!("/api/backup-task-logs?{query}")).await.expect(200)["meta"]["total"].clone()
        };
        assert_eq!(total(&format!("backup_task_id={first}")).await, 2);
        assert_eq!(total("status=queued").await, 1);
        assert_eq!(total(&format!("status=failed&backup_task_id={second}")).await, 1);
        user.client.get("/api/backup-task-logs?status=done").await.expect(422);
        user.client.get("/api/backup-task-logs?backup_task_id=x").await.expect(422);

        let log = all["data"][0].clone();
        let mut names: Vec<&str> = log.as_object().unwrap().keys().map(String::as_str).collect();
        names.sort_unstable();
        let expected = ["attempt", "backup_id", "backup_task_id", "bytes_read", "bytes_stored", "created_at", "duration_ms",
            "error_code", "files", "finished_at", "id", "output", "progress", "started_at", "status", "trigger", "warnings"];
        assert_eq!(names, expected);
        let path = format!("/api/backup-task-logs/{}", log["id"]);
        assert_eq!(user.client.get(&path).await.data(200), log);
        let body = user.client.delete(&path).await.expect(200);
        assert_eq!(body, json!({"message": "Backup task log successfully deleted"}));
        user.client.get(&path).await.expect(404);
        let live = user.client.get(&format!("/api/backup-tasks/{second}/latest-log")).await.data(200);
        assert_eq!(live["finished_at"], json!(null));
        user.client.delete(&format!("/api/backup-task-logs/{}", live["id"])).await.expect(409);
    }

    async fn checks_are_not_listed_as_logs(app: TestApp) {
        let user = app.user("ada").await;
        let server = user.server().await;
        user.client.act(&format!("/api/remote-servers/{server}/check")).await.expect(202);
        app.run_until_idle().await;
        assert_eq!(user.client.get("/api/backup-task-logs").await.expect(200)["meta"]["total"], 0);
        user.client.get("/api/backup-task-logs/1").await.expect(404);
        assert_eq!(user.client.get("/api/user").await.data(200)["backup_tasks"]["logs"]["total"], 0);
    }
}
