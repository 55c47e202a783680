use holdfast_testkit::{Engine, TestApp};
use reqwest::Method;
use serde_json::Value;

/// The copy in the repository lets reviewers see changes; `cargo xtask openapi` regenerates it.
#[test]
fn the_document_in_the_repository_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let kept: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert!(kept == holdfast_api::document(), "docs/openapi.json is out of date; run `cargo xtask openapi`");
}

#[tokio::test]
async fn document_and_its_reader_are_served_from_the_binary_alone() {
    let app = TestApp::start(Engine::Sqlite).await;
    let client = app.client();
    let document = client.get("/api/openapi.json").await.expect(200);
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(client.get("/docs").await.status, 308);
    let page = client.get("/docs/").await;
    assert_eq!(page.status, 200);
    assert!(page.header("content-security-policy").unwrap().contains("script-src 'self'"));
    let files = page.text.split('"').filter(|text| text.ends_with(".js") || text.ends_with(".css"));
    let files: Vec<&str> = files.map(|file| file.trim_start_matches("./")).collect();
    assert!(files.len() >= 3, "{}", page.text);
    for file in files {
        assert!(!file.contains("://"), "{file} would be loaded from elsewhere");
        assert_eq!(client.get(&format!("/docs/{file}")).await.status, 200, "{file}");
    }
    let path = "/docs/swagger-ui.css";
    let plain = client.get(path).await.text;
    let packed = client.request(Method::GET, path).header("accept-encoding", "gzip").send().await.unwrap();
    assert_eq!(packed.headers()["content-encoding"], "gzip");
    assert!(packed.bytes().await.unwrap().len() * 4 < plain.len());
    client.get("/docs/../secrets").await.expect(404);
}

#[test]
fn every_route_is_described_and_every_reference_resolves() {
    let document = holdfast_api::document();
    let schemas = document["components"]["schemas"].as_object().unwrap();
    let text = document.to_string();
    for reference in text.split("#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is not described");
    }
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            assert!(!operation["summary"].as_str().unwrap().is_empty(), "{method} {path}");
        }
    }
}

/// A generated client sends the default of every omitted field; in an update that would reset the field.
#[test]
fn no_field_of_an_update_declares_a_default() {
    let document = holdfast_api::document();
    let mut updates = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in ["put", "patch"] {
            if let Some(body) = methods.get(method).and_then(|operation| operation.get("requestBody")) {
                refuse_defaults(&document, &body["content"]["application/json"]["schema"], &format!("{method} {path}"));
                updates += 1;
            }
        }
    }
    assert!(updates >= 12, "only {updates} updates were found");
    let created = &document["components"]["schemas"]["TaskBody"]["properties"]["maximum_backups_to_keep"];
    assert_eq!(created["default"], 5, "defaults of what is created stay in the document");
}

#[test]
fn an_update_of_a_destination_says_when_it_needs_the_keys_again() {
    let document = holdfast_api::document();
    let fields = &document["components"]["schemas"]["DestinationBodyUpdate"]["properties"];
    for key in ["s3_access_key", "s3_secret_key"] {
        let about = fields[key]["description"].as_str().unwrap();
        assert!(about.contains("needs both keys in the same request"), "{key}: {about}");
    }
}

/// Also follows references. The keys of `properties` are names of fields, not keywords.
fn refuse_defaults(document: &Value, schema: &Value, place: &str) {
    match schema {
        Value::Object(fields) => {
            assert!(!fields.contains_key("default"), "{place} declares a default: {schema}");
            if let Some(name) = fields.get("$ref").and_then(|target| target.as_str()?.rsplit('/').next()) {
                refuse_defaults(document, &document["components"]["schemas"][name], &format!("{place} {name}"));
            }
            for (keyword, value) in fields {
                match value.as_object().filter(|_| keyword == "properties") {
                    Some(properties) => properties
                        .iter()
                        .for_each(|(name, schema)| refuse_defaults(document, schema, &format!("{place} {name}"))),
                    None => refuse_defaults(document, value, place),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| refuse_defaults(document, item, place)),
        _ => {}
    }
}
