use holdfast_testkit::{TestApp, on_both_engines};
use serde_json::json;

use crate::browser::signed_in;

on_both_engines! {
    async fn the_form_removes_a_password_only_when_asked(app: TestApp) {
        let ada = app.user("ada").await;
        let destination = json!({
            "label": "nas", "type": "sftp", "sftp_host": "192.0.2.1", "sftp_username": "backup",
            "sftp_path": "/backups", "sftp_password": "planted",
        });
        let id = ada.client.post("/api/backup-destinations", destination).await.id(201);
        let is_set = async || {
            let shown = ada.client.get(&format!("/api/backup-destinations/{id}")).await.data(200);
            shown["is_sftp_password_set"].as_bool()
        };
        let mut browser = signed_in(&app, "ada").await;
        let edit = format!("/destinations/{id}/edit");
        let form = browser.get(&edit).await.text;
        assert!(form.contains("name=\"remove_sftp_password\"") && !form.contains("planted"), "{form}");
        assert!(!form.contains("field-error"), "nothing was submitted yet: {form}");
        let switch = form.split("<div").find(|part| part.contains("name=\"path_style_endpoint\"")).unwrap();
        assert!(switch.contains("data-when=\"type=custom_s3\""), "{switch}");
        let mut fields = vec![
            ("label", "nas"), ("type", "sftp"), ("sftp_host", "192.0.2.1"), ("sftp_port", "22"),
            ("sftp_username", "backup"), ("sftp_path", "/backups"), ("sftp_password", ""),
        ];
        assert_eq!(browser.submit(&edit, &fields).await.status, 303);
        assert_eq!(is_set().await, Some(true), "an empty field keeps the password");
        fields.push(("remove_sftp_password", "on"));
        assert_eq!(browser.submit(&edit, &fields).await.status, 303);
        assert_eq!(is_set().await, Some(false));
        assert!(!browser.get(&edit).await.text.contains("remove_sftp_password"));
    }
}
