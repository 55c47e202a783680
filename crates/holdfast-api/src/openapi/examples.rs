//! Examples of bodies and responses. `examples.json` has one for each type, and one for each operation whose response
//! says something of its own, such as the message of a confirmation.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::doc::{AnswerDoc, SchemaDoc};
use super::update;
use crate::table::{BodyDoc, Route};

/// Where the service of the examples is.
const ORIGIN: &str = "https://backup.example.org";

#[derive(Deserialize)]
pub(super) struct Examples {
    types: Map<String, Value>,
    operations: Map<String, Value>,
}

impl Examples {
    pub(super) fn read() -> Self {
        // A test finds what is missing.
        serde_json::from_str(include_str!("examples.json")).expect("a file that is part of the program")
    }

    pub(super) fn body(&self, body: &BodyDoc) -> Value {
        self.of_type(&if body.partial { update::name(&body.schema.name) } else { body.schema.name.clone() })
    }

    /// The example of a successful response.
    pub(super) fn answer(&self, operation: &str, route: &Route, answer: &AnswerDoc) -> Value {
        let item = |schema: &SchemaDoc| {
            let own = self.operations.get(operation).cloned();
            own.unwrap_or_else(|| self.of_type(&schema.name))
        };
        match answer {
            AnswerDoc::Bare(_, schema) => item(schema),
            AnswerDoc::Data(_, schema) => json!({ "data": item(schema) }),
            AnswerDoc::All(schema) => json!({ "data": [item(schema)] }),
            AnswerDoc::Page(schema) => page(&route.path.replace("{id}", "1"), &item(schema)),
            AnswerDoc::Bytes => json!("<h1>Hello</h1>\n"),
            AnswerDoc::Events(schema) => {
                let data = item(schema);
                let subject = data["subject"].as_str().unwrap_or_default();
                json!(format!("id: 0-17\nevent: {subject}\ndata: {data}\n\n"))
            }
        }
    }

    fn of_type(&self, name: &str) -> Value {
        self.types.get(name).cloned().unwrap_or_default()
    }
}

/// A page with one item, which is also the last.
fn page(path: &str, item: &Value) -> Value {
    let url = format!("{ORIGIN}{path}");
    json!({
        "data": [item],
        "links": { "first": format!("{url}?page=1"), "last": format!("{url}?page=1"), "prev": null, "next": null },
        "meta": {
            "current_page": 1, "from": 1, "last_page": 1, "path": url, "per_page": 15, "to": 1, "total": 1,
            "next_cursor": null,
        },
    })
}
