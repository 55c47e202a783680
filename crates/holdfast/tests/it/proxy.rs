use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use holdfast_testkit::{Engine, free_port};
use reqwest::{StatusCode, header};
use serde_json::json;
use tempfile::TempDir;

use crate::process::{Installation, Service};

const EMAIL: &str = "ada@example.org";
const PASSWORD: &str = "correct horse battery";

/// A real nginx with the configuration of the manual, except for names and ports; killed when dropped.
struct Nginx {
    child: Child,
    url: String,
    _folder: TempDir,
}

impl Nginx {
    fn start(service_port: &str, port: u16) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (key, certificate) = (at("key.pem"), at("certificate.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"])
            .args(["-subj", "/CN=localhost", "-keyout", &key, "-out", &certificate])
            .output()
            .unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/nginx.conf");
        let server = std::fs::read_to_string(manual).unwrap();
        let changes = [
            ("listen 443 ssl", format!("listen 127.0.0.1:{port} ssl")),
            ("server_name backup.example.org", "server_name localhost".to_owned()),
            ("/etc/ssl/backup.example.org/fullchain.pem", certificate),
            ("/etc/ssl/backup.example.org/privkey.pem", key),
            ("http://127.0.0.1:8080", format!("http://127.0.0.1:{service_port}")),
        ];
        let server = changes.iter().fold(server, |text, (from, to)| {
            assert!(text.contains(from), "the manual's configuration has no {from}");
            text.replace(from, to)
        });
        let temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
        let temporary: String =
            temporary.iter().map(|name| format!("{name}_temp_path {};\n", at(&format!("{name}-temp")))).collect();
        let whole = format!(
            "daemon off;\nmaster_process off;\npid {};\nerror_log {} warn;\nevents {{}}\nhttp {{\naccess_log off;\n{temporary}{server}\n}}\n",
            at("pid"),
            at("error.log")
        );
        std::fs::write(at("nginx.conf"), whole).unwrap();
        let mut command = Command::new("/usr/sbin/nginx");
        command.args(["-p", &at(""), "-c", &at("nginx.conf")]).stdout(Stdio::null()).stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < deadline, "{}", std::fs::read_to_string(at("error.log")).unwrap_or_default());
            std::thread::sleep(Duration::from_millis(20));
        }
        Self { child, url: format!("https://localhost:{port}"), _folder: folder }
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Errors are ignored: it may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

fn browser() -> reqwest::Client {
    let resolve = std::net::SocketAddr::from(([127, 0, 0, 1], 0));
    reqwest::Client::builder()
        .tls_danger_accept_invalid_certs(true)
        .resolve("localhost", resolve)
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap()
}

fn cookie(response: &reqwest::Response, name: &str) -> Option<String> {
    let all = response.headers().get_all(header::SET_COOKIE);
    all.iter().filter_map(|value| value.to_str().ok()).find(|text| text.starts_with(name)).map(str::to_owned)
}

fn plain(cookie: &str) -> String {
    cookie.split(';').next().unwrap().to_owned()
}

/// Signs in with the form, as a browser does; returns the session cookie.
async fn sign_in(http: &reqwest::Client, url: &str) -> String {
    let page = http.get(format!("{url}/sign-in")).send().await.unwrap();
    let visitor = plain(&cookie(&page, "holdfast_visitor").unwrap());
    let text = page.text().await.unwrap();
    let csrf = text.split("name=\"csrf\" value=\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
    let form = [("csrf", csrf.as_str()), ("email", EMAIL), ("password", PASSWORD)];
    let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
    let post = http.post(format!("{url}/sign-in")).header(header::COOKIE, visitor).header(header::ORIGIN, url);
    let answer =
        post.header(header::CONTENT_TYPE, "application/x-www-form-urlencoded").body(body).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::SEE_OTHER, "{}", answer.text().await.unwrap_or_default());
    let session = cookie(&answer, "holdfast_session").expect("a session");
    assert!(session.contains("Secure") && session.contains("HttpOnly"), "{session}");
    plain(&session)
}

fn serve(installation: &Installation, url: &str) -> Service {
    installation.serve(&[("HOLDFAST_BASE_URL", url), ("HOLDFAST_TRUSTED_PROXIES", "127.0.0.1")])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_works_behind_the_proxy_of_the_manual() {
    let installation = Installation::new(Engine::Sqlite).await;
    let port = free_port();
    let url = format!("https://localhost:{port}");
    let service = serve(&installation, &url);
    assert!(service.greeting.contains(&format!("{url}/set-up/")), "links lead to the proxy: {}", service.greeting);
    let nginx = Nginx::start(service.base_url.rsplit(':').next().unwrap(), port);
    assert_eq!(nginx.url, url);
    let create = ["user", "create", "--email", EMAIL, "--name", "Ada"];
    installation.succeed(&create, &format!("{PASSWORD}\n"));
    let token = ["token", "create", "--user", EMAIL, "--name", "t", "--all-scopes"];
    let token = installation.succeed(&token, "");
    let http = browser();

    // The API, with the public URL in its links.
    let call = |path: &str| http.get(format!("{url}{path}")).bearer_auth(&token);
    let page = call("/api/tags?per_page=1").send().await.unwrap();
    assert_eq!(page.status(), StatusCode::OK);
    let page: serde_json::Value = serde_json::from_str(&page.text().await.unwrap()).unwrap();
    assert!(page["links"]["first"].as_str().unwrap().starts_with(&url), "{page}");
    // Metrics are not served through a proxy, nor to an address that may be one.
    assert_eq!(call("/metrics").send().await.unwrap().status(), StatusCode::NOT_FOUND);
    assert_eq!(service.client().get("/metrics").await.status, 404);
    assert_eq!(call("/readyz").send().await.unwrap().status(), StatusCode::OK);

    // Pages: signing in, secure cookies, and a forged client address is ignored.
    let session = sign_in(&http, &url).await;
    let audit = http.get(format!("{url}/account/security")).header(header::COOKIE, &session).send().await.unwrap();
    let audit = audit.text().await.unwrap();
    assert!(audit.contains("127.0.0.1") && !audit.contains("203.0.113.9"), "{audit}");

    // Live pages: events arrive at once, not when a buffer is full.
    let live = http.get(format!("{url}/live")).header(header::COOKIE, &session).send().await.unwrap();
    assert_eq!(live.status(), StatusCode::OK);
    let mut events = live.bytes_stream();
    let first = tokio::time::timeout(Duration::from_secs(20), events.next()).await.expect("an event").unwrap().unwrap();
    assert!(!first.is_empty());
    drop(events);

    // The proxy refuses large bodies before they reach the service.
    let large = json!({"label": "x".repeat(2 << 20)}).to_string();
    let refused = http.post(format!("{url}/api/tags")).bearer_auth(&token).body(large).send().await.unwrap();
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert!(refused.text().await.unwrap().contains("nginx"), "the request reached Holdfast");
}
