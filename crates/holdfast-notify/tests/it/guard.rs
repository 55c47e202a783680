use holdfast_core::Secret;
use holdfast_core::clock;
use holdfast_notify::{About, Channel, NoticeContent, Ping, Sender, Settings};
use holdfast_testkit::{Answer, Receiver};

fn content() -> NoticeContent {
    let zone = clock::zone("UTC").unwrap();
    let about =
        About { event: "e", base_url: "http://localhost", zone: &zone, at: "2025-03-03T02:00:00Z".parse().unwrap() };
    NoticeContent::Message(holdfast_notify::test_message(&about, "ops"))
}

/// Tries many ways to write loopback and metadata addresses.
#[tokio::test]
async fn only_administrators_reach_loopback_and_nobody_reaches_metadata_services() {
    let hook = Receiver::start().await;
    let port = hook.port();
    let sender = Sender::new(Settings::default());
    for host in [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0.0.0.0",
        "localhost",
        "a.localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
    ] {
        let url = Secret::new(format!("http://{host}:{port}/"));
        for channel in [Channel::Discord(url.clone()), Channel::Slack(url.clone()), Channel::Teams(url.clone())] {
            let refused = sender.deliver(&channel, &content(), false).await.unwrap_err();
            assert!(refused.text.contains("HOLDFAST_EGRESS_ALLOW"), "{host}: {refused:?}");
            assert!(!refused.text.contains("127") && !refused.text.contains("::"), "{host}: {refused:?}");
        }
        let ping = NoticeContent::Ping(Ping { suffix: None, text: String::new() });
        assert!(sender.deliver(&Channel::Heartbeat(url), &ping, false).await.is_err(), "{host}");
    }
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "[fd00:ec2::254]"] {
        let url = Secret::new(format!("http://{host}/latest/meta-data"));
        let refused = sender.deliver(&Channel::Slack(url), &content(), true).await.unwrap_err();
        assert!(refused.text.contains("HOLDFAST_EGRESS_ALLOW"), "{host}: {refused:?}");
    }
    assert!(hook.received().is_empty());
    sender.deliver(&Channel::Slack(Secret::new(hook.url("/"))), &content(), true).await.unwrap();
    assert_eq!(hook.received().len(), 1);
}

#[tokio::test]
async fn the_operator_opens_networks_one_by_one() {
    let hook = Receiver::start().await;
    let open = |network: &str| Settings { egress_allow: vec![network.parse().unwrap()], ..Settings::default() };
    let channel = Channel::Slack(Secret::new(hook.url("/")));
    Sender::new(open("127.0.0.0/8")).deliver(&channel, &content(), false).await.unwrap();
    assert!(Sender::new(open("10.0.0.0/8")).deliver(&channel, &content(), false).await.is_err());
}

/// A permitted address must not redirect to a private one.
#[tokio::test]
async fn redirects_are_not_followed() {
    let (hook, inner) = (Receiver::start().await, Receiver::start().await);
    hook.answer(Answer::Redirect(inner.url("/admin")));
    let refused = Sender::new(Settings::default())
        .deliver(&Channel::Teams(Secret::new(hook.url("/"))), &content(), true)
        .await
        .unwrap_err();
    assert!(refused.text.contains("Redirects are not followed"), "{refused:?}");
    assert!(inner.received().is_empty());
}
