//! Calls of a service that loses responses, and of one that has many rows.

use std::sync::{Arc, Mutex};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A service that gives these responses, one for each connection; `None` closes it without a response. Returns its URL
/// and the requests that it received.
async fn service(responses: Vec<Option<String>>) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let seen = requests.clone();
    tokio::spawn(async move {
        for response in responses {
            let (mut connection, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.windows(4).any(|end| end == b"\r\n\r\n") {
                let mut piece = [0; 1024];
                let count = connection.read(&mut piece).await.unwrap();
                request.extend_from_slice(&piece[..count]);
            }
            seen.lock().unwrap().push(String::from_utf8(request).unwrap());
            if let Some(response) = response {
                connection.write_all(response.as_bytes()).await.unwrap();
            }
        }
    });
    (url, requests)
}

fn response(status: &str, body: &Value) -> Option<String> {
    let body = body.to_string();
    Some(format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()))
}

fn keys(requests: &Mutex<Vec<String>>) -> Vec<String> {
    let key = |request: &String| {
        request.lines().find_map(|line| line.strip_prefix("idempotency-key: ")).unwrap_or_default().to_owned()
    };
    requests.lock().unwrap().iter().map(key).collect()
}

#[tokio::test]
async fn a_post_whose_response_was_lost_is_sent_again_with_the_same_key() {
    let busy = response("409 Conflict", &json!({"message": "It has not ended."}));
    let (url, requests) = service(vec![None, busy, response("201 Created", &json!({"data": {"id": 7}}))]).await;
    let client = Client::new(&url, "t", None).unwrap();
    assert_eq!(client.post("/api/tags", None).await.unwrap()["id"], 7);
    let keys = keys(&requests);
    assert!(keys.len() == 3 && keys[0].len() == 32 && keys.iter().all(|key| *key == keys[0]), "{keys:?}");
}

#[tokio::test]
async fn what_was_refused_is_not_sent_again_and_every_post_has_its_own_key() {
    let refused = || response("409 Conflict", &json!({"message": "It is paused."}));
    let (url, requests) = service(vec![refused(), refused(), refused(), None]).await;
    let client = Client::new(&url, "t", None).unwrap();
    for _ in 0..2 {
        assert!(matches!(client.post("/api/backup-tasks/1/run", None).await, Err(ClientError::Conflict(_))));
    }
    assert!(matches!(client.put("/api/tags/1", &json!({})).await, Err(ClientError::Conflict(_))));
    // Whoever only reads decides whether to ask again.
    assert!(matches!(client.get("/api/tags/1").await, Err(ClientError::Unreachable { .. })));
    let keys = keys(&requests);
    assert!(keys.len() == 4 && keys[0] != keys[1] && keys[2].is_empty(), "{keys:?}");
}

#[tokio::test]
async fn an_update_whose_response_was_lost_is_sent_again() {
    let (url, requests) = service(vec![None, response("200 OK", &json!({"data": {"id": 7}}))]).await;
    let client = Client::new(&url, "t", None).unwrap();
    assert_eq!(client.put("/api/tags/7", &json!({"label": "a"})).await.unwrap()["id"], 7);
    let requests = requests.lock().unwrap();
    assert!(requests.len() == 2 && requests.iter().all(|request| request.starts_with("PUT ")), "{requests:?}");
}

/// Of a deletion that nobody repeats, a 404 says that there was nothing to delete.
#[tokio::test]
async fn what_is_gone_after_a_lost_response_was_deleted() {
    let missing = || response("404 Not Found", &json!({"message": "Tag not found"}));
    let (url, _) = service(vec![missing(), None, missing()]).await;
    let client = Client::new(&url, "t", None).unwrap();
    assert!(matches!(client.delete("/api/tags/7").await, Err(ClientError::Missing(_))));
    assert_eq!(client.delete("/api/tags/7").await.unwrap()["message"], "It is deleted.");
}

fn marked(changes: &str) -> Option<String> {
    let body = json!({"data": {"id": 7, "label": "a"}}).to_string();
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n", body.len());
    Some(format!("{head}holdfast-dry-run: true\r\nholdfast-changes: {changes}\r\n\r\n{body}"))
}

/// The repetition finds a newer version: that of the attempt whose response was lost, or that of somebody else.
#[tokio::test]
async fn a_version_that_is_outdated_after_a_lost_response_may_be_the_wanted_one() {
    let outdated = || response("412 Precondition Failed", &json!({"message": "It has changed."}));
    let body = json!({"label": "a"});
    let change =
        Change { method: Method::PUT, path: "/api/tags/7", body: Some(&body), condition: Condition::Version("\"4\"") };
    let (url, requests) = service(vec![None, outdated(), marked(""), marked(""), marked("")]).await;
    let made = Client::new(&url, "t", None).unwrap().change(&change).await;
    assert_eq!(made.unwrap()["label"], "a");
    assert!(!requests.lock().unwrap()[3].contains("if-match"), "the dry run is of the newest version");
    let (url, _) = service(vec![None, outdated(), marked(""), marked("label")]).await;
    let made = Client::new(&url, "t", None).unwrap().change(&change).await;
    assert!(matches!(made, Err(ClientError::Outdated(_))), "{made:?}");
}

#[tokio::test]
async fn what_nobody_knows_is_told() {
    let down = || response("503 Service Unavailable", &json!({"message": "It starts."}));
    let (url, _) = service(vec![down(), None, down(), down(), down(), down()]).await;
    let client = Client::new(&url, "t", None).unwrap();
    // It was refused before anything was done.
    assert!(matches!(client.delete("/api/tags/7").await, Err(ClientError::Broken { status: 503, .. })));
    let told = client.delete("/api/tags/7").await.unwrap_err().about("tag \"a\"").to_string();
    assert!(told.starts_with("tag \"a\": it is unknown whether this took effect: the service"), "{told}");
}

#[tokio::test]
async fn lists_are_complete_with_cursors_and_with_pages() {
    let page = |from: i64, meta: Value| {
        let rows: Vec<Value> = (from..from + 2).map(|id| json!({"id": id})).collect();
        response("200 OK", &json!({"data": rows, "meta": meta}))
    };
    let cursors = vec![
        page(1, json!({"last_page": 9, "next_cursor": "a b"})),
        page(3, json!({"next_cursor": "c"})),
        page(5, json!({"next_cursor": null})),
    ];
    let pages =
        vec![page(1, json!({"last_page": 3})), page(3, json!({"last_page": 3})), page(5, json!({"last_page": 3}))];
    for (responses, queries) in [(cursors, ["", "&cursor=a+b", "&cursor=c"]), (pages, ["", "&page=2", "&page=3"])] {
        let (url, requests) = service(responses).await;
        let rows = Client::new(&url, "t", None).unwrap().list("/api/tags", &[]).await.unwrap();
        assert_eq!(rows.iter().map(|row| row["id"].as_i64().unwrap()).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        for (request, query) in requests.lock().unwrap().iter().zip(queries) {
            assert!(request.starts_with(&format!("GET /api/tags?per_page=100{query} HTTP")), "{request}");
        }
    }
}

#[test]
fn invalid_urls_are_refused() {
    for wrong in ["", "backup.example.org", "ftp://backup.example.org"] {
        assert!(matches!(Client::new(wrong, "t", None), Err(ClientError::Settings(_))), "{wrong}");
    }
}

#[tokio::test]
async fn a_service_that_does_not_mark_its_response_has_no_dry_runs() {
    let marked = |more: &str| {
        let body = json!({"data": {"id": 7}}).to_string();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n{more}", body.len());
        Some(format!("{head}\r\n{body}"))
    };
    let found = "holdfast-dry-run: true\r\nholdfast-changes: label, value\r\netag: \"5\"\r\n";
    let answers = vec![marked(""), marked("holdfast-dry-run: true\r\n"), marked(found), marked(""), marked("")];
    let (url, requests) = service(answers).await;
    let client = Client::new(&url, "t", None).unwrap();
    assert!(!client.has_dry_runs().await.unwrap());
    assert!(client.has_dry_runs().await.unwrap());
    let change = |condition| Change { method: Method::PUT, path: "/api/tags/7", body: None, condition };
    let tried = client.try_out(&change(Condition::Version("\"4\""))).await.unwrap();
    assert_eq!(
        (tried.version.as_deref(), tried.changed),
        (Some("\"5\""), vec!["label".to_owned(), "value".to_owned()])
    );
    let unmarked = client.try_out(&change(Condition::None)).await;
    assert!(matches!(unmarked, Err(ClientError::Refused(_))), "it was carried out: {unmarked:?}");
    let new = Change { method: Method::POST, path: "/api/tags", body: None, condition: Condition::NewLabel };
    client.change(&new).await.unwrap();
    let requests = requests.lock().unwrap();
    assert!(requests[2].contains("if-match: \"4\"\r\n") && requests[2].contains("holdfast-dry-run: true\r\n"));
    assert!(
        requests[4].contains("if-none-match: *\r\n") && !requests[4].contains("holdfast-dry-run"),
        "{}",
        requests[4]
    );
}
