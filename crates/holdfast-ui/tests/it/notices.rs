use holdfast_testkit::{TestApp, on_both_engines};

use crate::browser::signed_in;

on_both_engines! {
    async fn an_incident_is_shown_with_its_tasks_until_it_is_over(app: TestApp) {
        let user = app.user("ada").await;
        let mut browser = signed_in(&app, "ada").await;
        assert!(!browser.get("/notices").await.text.contains("id=\"incidents\""));
        let mut tasks = Vec::new();
        for number in 0..3 {
            let mut body = user.task_body().await;
            body["label"] = format!("files <{number}>").into();
            body["notification_stream_ids"] = serde_json::json!([user.stream().await]);
            let task = user.client.post("/api/backup-tasks", body).await.id(201);
            user.client.act(&format!("/api/backup-tasks/{task}/run")).await.expect(202);
            tasks.push(task);
        }
        app.run_until_idle().await;
        let page = browser.get("/notices").await.text;
        assert!(page.contains("id=\"incidents\"") && page.contains("Backups of several servers fail"), "{page}");
        for (number, task) in tasks.iter().enumerate() {
            assert!(page.contains(&format!("<a href=\"/tasks/{task}\"><bdi>files &#60;{number}&#62;</bdi></a>")), "{page}");
        }
        assert!(page.contains("not successful since") && page.contains("Since"), "{page}");
        // The message itself names them, too.
        assert!(page.contains("Tasks affected: <bdi>3: files &#60;0&#62;"), "{page}");
        for task in &tasks {
            user.client.act(&format!("/api/backup-tasks/{task}/pause")).await.expect(200);
        }
        app.worker().tidy().await.unwrap();
        let page = browser.get("/notices").await.text;
        assert!(!page.contains("id=\"incidents\"") && page.contains("Backups of several servers no longer fail"), "{page}");
    }
}
