use std::time::Duration;

use holdfast_core::Secret;
use holdfast_core::clock;
use holdfast_notify::{About, Channel, NoticeContent, Ping, Sender, Settings, Smtp};
use holdfast_testkit::{Answer, MailServer, Receiver};

fn content() -> NoticeContent {
    let zone = clock::zone("UTC").unwrap();
    let about =
        About { event: "e", base_url: "http://localhost", zone: &zone, at: "2025-03-03T02:00:00Z".parse().unwrap() };
    NoticeContent::Message(holdfast_notify::test_message(&about, "ops"))
}

fn sender() -> Sender {
    Sender::new(Settings { limit: Duration::from_millis(700), ..Settings::default() })
}

#[tokio::test]
async fn what_a_webhook_answers_decides_whether_to_try_again() {
    let hook = Receiver::start().await;
    let secret = "/hooks/very-secret";
    let channel = Channel::Slack(Secret::new(hook.url(secret)));
    for status in [200, 202, 204] {
        hook.answer(Answer::Status(status));
        assert_eq!(
            sender().deliver(&channel, &content(), true).await.unwrap(),
            format!("The channel answered {status}.")
        );
    }
    let elsewhere = Receiver::start().await;
    let cases = [
        (Answer::Says(400, "invalid_payload".into()), false, None),
        (Answer::Says(404, "no_service".into()), false, None),
        (Answer::Later(429, "90".into()), true, Some(90)),
        (Answer::Says(429, r#"{"retry_after": 0.3}"#.into()), true, Some(1)),
        (Answer::Later(503, "5".into()), true, Some(5)),
        (Answer::Status(500), true, None),
        (Answer::Hang, true, None),
        (Answer::Close, true, None),
        (Answer::Redirect(elsewhere.url("/")), true, None),
        (Answer::Says(500, format!("Cannot POST {secret}")), true, None),
        (Answer::Status(401), true, None),
    ];
    for (answer, can_retry, retry_after) in cases {
        hook.answer(answer.clone());
        let refusal = sender().deliver(&channel, &content(), true).await.unwrap_err();
        assert_eq!((refusal.can_retry, refusal.retry_after), (can_retry, retry_after), "{answer:?}: {refusal:?}");
        assert!(!refusal.text.contains("secret") && !refusal.text.contains(&hook.port().to_string()), "{refusal:?}");
    }
    assert!(elsewhere.received().is_empty(), "redirects are not followed");
    drop(hook);
    let refusal = sender().deliver(&channel, &content(), true).await.unwrap_err();
    assert!(refusal.can_retry && !refusal.text.contains("secret"), "{refusal:?}");
}

#[tokio::test]
async fn an_endless_answer_is_not_read_to_its_end() {
    let hook = Receiver::start().await;
    hook.answer(Answer::Says(500, "x".repeat(10_000_000)));
    let refusal = sender().deliver(&Channel::Discord(Secret::new(hook.url("/"))), &content(), true).await.unwrap_err();
    assert!(refusal.text.chars().count() < 250, "{}", refusal.text.len());
}

/// An accepted message counts as delivered, whatever the channel does afterwards.
#[tokio::test]
async fn an_answer_that_hangs_after_its_status_counts() {
    let hook = Receiver::start().await;
    hook.answer(Answer::HangsAfter(200));
    let answer = sender().deliver(&Channel::Teams(Secret::new(hook.url("/"))), &content(), true).await.unwrap();
    assert_eq!(answer, "The channel answered 200.");
}

/// Users who may not reach private networks must not learn what servers there respond.
#[tokio::test]
async fn ordinary_users_see_only_the_status_of_a_response() {
    let hook = Receiver::start().await;
    hook.answer(Answer::Says(500, "internal wisdom".into()));
    let open = Settings { egress_allow: vec!["127.0.0.0/8".parse().unwrap()], ..Settings::default() };
    let channel = Channel::Slack(Secret::new(hook.url("/")));
    let refusal = Sender::new(open).deliver(&channel, &content(), false).await.unwrap_err();
    assert_eq!(refusal.text, "The channel answered 500.");
}

#[tokio::test]
async fn heartbeats_say_start_success_and_fail() {
    let hook = Receiver::start().await;
    let channel = Channel::Heartbeat(Secret::new(hook.url("/ping/abc")));
    for suffix in [Some("start"), None, Some("fail")] {
        let ping =
            NoticeContent::Ping(Ping { suffix: suffix.map(str::to_owned), text: "The backup started.".to_owned() });
        sender().deliver(&channel, &ping, true).await.unwrap();
    }
    let paths: Vec<String> = hook.received().into_iter().map(|received| received.path).collect();
    assert_eq!(paths, ["/ping/abc/start", "/ping/abc", "/ping/abc/fail"]);
}

fn mailer(url: &str, ca: Option<&[u8]>) -> Sender {
    Sender::new(Settings {
        smtp: Smtp::parse(url),
        mail_from: "Holdfast <backup@example.org>".to_owned(),
        ca_pem: ca.map(<[u8]>::to_vec),
        limit: Duration::from_secs(5),
        ..Settings::default()
    })
}

#[tokio::test]
async fn mail_goes_over_tls_and_only_to_servers_that_are_known() {
    let to = Channel::Email("ops@example.org".to_owned());
    let login = "holdfast:mail%20p%2Fw%2B%3F";
    for (server, scheme) in [(MailServer::start(), "smtp"), (MailServer::start_tls(), "smtps")] {
        let url = format!("{scheme}://{login}@127.0.0.1:{}", server.port());
        let answer = mailer(&url, Some(server.certificate())).deliver(&to, &content(), false).await.unwrap();
        assert_eq!(answer, "The mail server answered 250 2.0.0 taken");
        assert!(server.mails()[0].is_tls);
        let unknown = mailer(&url, None).deliver(&to, &content(), false).await.unwrap_err();
        assert!(unknown.can_retry && !unknown.text.contains("mail p"), "{unknown:?}");
        assert!(unknown.text.contains("TLS"), "{unknown:?}");
        let wrong = url.replace("holdfast:mail", "holdfast:wrong");
        let wrong = mailer(&wrong, Some(server.certificate())).deliver(&to, &content(), false).await.unwrap_err();
        assert!(wrong.can_retry && wrong.text.contains("535"), "{wrong:?}");
        assert_eq!(server.mails().len(), 1);
    }
    // A server that does not offer TLS gets neither the password nor the mail.
    let open = MailServer::start_open();
    let stripped = mailer(&format!("smtp://{login}@127.0.0.1:{}", open.port()), None);
    let refusal = stripped.deliver(&to, &content(), false).await.unwrap_err();
    assert!(open.mails().is_empty(), "{refusal:?}");
    let plain = mailer(&format!("smtp://127.0.0.1:{}?tls=none", open.port()), None);
    plain.deliver(&to, &content(), false).await.unwrap();
    assert_eq!(open.mails().len(), 1);
}

/// The late response to one mail is not taken for the response to the next.
#[tokio::test]
async fn a_late_response_is_not_attributed_to_the_next_mail() {
    let server = MailServer::start_open();
    let sender = Sender::new(Settings {
        smtp: Smtp::parse(&format!("smtp://127.0.0.1:{}?tls=none", server.port())),
        limit: Duration::from_millis(300),
        ..Settings::default()
    });
    let deliver = async |to: &str| sender.deliver(&Channel::Email(to.to_owned()), &content(), false).await;
    deliver("ops@example.org").await.unwrap();
    assert!(deliver("slow@example.org").await.unwrap_err().can_retry);
    while !server.has_answered_late() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    for _ in 0..3 {
        let refused = deliver("unwanted@example.org").await.unwrap_err();
        assert!(refused.text.contains("554"), "{refused:?}");
    }
    deliver("ops@example.org").await.unwrap();
    assert_eq!(server.mails().len(), 2);
}

#[tokio::test]
async fn what_a_mail_server_answers_decides_whether_to_try_again() {
    let server = MailServer::start_open();
    let sender = mailer(&format!("smtp://127.0.0.1:{}?tls=none", server.port()), None);
    let deliver = async |to: &str| sender.deliver(&Channel::Email(to.to_owned()), &content(), false).await;
    let refused = deliver("refused@example.org").await.unwrap_err();
    assert!(!refused.can_retry && refused.text.contains("550") && !refused.text.contains("@"), "{refused:?}");
    let later = deliver("later@example.org").await.unwrap_err();
    assert!(later.can_retry && later.text.contains("451"), "{later:?}");
    assert!(deliver("nobody").await.is_err());
    drop(server);
    assert!(deliver("ops@example.org").await.unwrap_err().can_retry);
    let none =
        Sender::new(Settings::default()).deliver(&Channel::Email("a@example.org".into()), &content(), false).await;
    let none = none.unwrap_err();
    assert!(none.text.contains("HOLDFAST_SMTP_URL"), "{none:?}");
}
