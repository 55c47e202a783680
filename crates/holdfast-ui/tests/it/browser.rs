//! A minimal browser: it keeps cookies and sends forms as browsers do.

use holdfast_testkit::{Client, PASSWORD, Reply, TestApp};
use reqwest::Method;

/// Keeps its cookies, and takes the CSRF token from the last page.
pub(crate) struct Browser {
    pub client: Client,
    pub cookies: std::collections::BTreeMap<String, String>,
    pub csrf: String,
}

impl Browser {
    pub(crate) fn new(client: Client) -> Self {
        Self { client, cookies: Default::default(), csrf: String::new() }
    }

    pub(crate) async fn get(&mut self, path: &str) -> Reply {
        let request = self.client.request(Method::GET, path).header("cookie", self.cookie_header());
        let reply = self.client.finish(request).await;
        self.look_at(reply)
    }

    pub(crate) async fn submit(&mut self, path: &str, fields: &[(&str, &str)]) -> Reply {
        let mut form = vec![("csrf", self.csrf.clone())];
        form.extend(fields.iter().map(|(name, value)| (*name, value.to_string())));
        let body: Vec<String> = form.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let request = self.client.request(Method::POST, path).header("cookie", self.cookie_header());
        // As browsers do; pages must not set `no-referrer`, which would make the origin "null".
        let request = request.header("origin", self.client.base_url());
        let reply = self.client.finish(request.body(body.join("&"))).await;
        self.look_at(reply)
    }

    pub(crate) fn cookie_header(&self) -> String {
        self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("; ")
    }

    fn look_at(&mut self, reply: Reply) -> Reply {
        for cookie in reply.headers.get_all("set-cookie") {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Lax"), "{cookie}");
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        if reply.header("content-type").is_some_and(|kind| kind.starts_with("text/html")) {
            assert_eq!(reply.header("referrer-policy"), Some("same-origin"));
            let policy = reply.header("content-security-policy").unwrap();
            assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        }
        if let Some((_, rest)) = reply.text.split_once("name=\"csrf\" value=\"") {
            rest.split('"').next().unwrap().clone_into(&mut self.csrf);
        }
        reply
    }
}

pub(crate) async fn signed_in(app: &TestApp, name: &str) -> Browser {
    let mut browser = Browser::new(app.client());
    browser.get("/sign-in").await;
    let email = format!("{name}@example.org");
    let reply = browser.submit("/sign-in", &[("email", &email), ("password", PASSWORD)]).await;
    assert_eq!(reply.header("location"), Some("/"));
    browser
}

fn encode(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
