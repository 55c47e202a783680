//! Formats messages for each channel. Labels and reasons come from users and from servers: they are put where the
//! channel shows plain text, or its markup is escaped in them.

use holdfast_core::Secret;
use serde_json::{Value, json};
use url::{Host, Url};

use crate::message::{Item, Message, Ping};
use crate::text::cut;

/// Where something is delivered to. All of it is secret: whoever knows a webhook's URL can post to it.
#[derive(Debug, Clone)]
pub enum Channel {
    Email(String),
    Discord(Secret),
    Slack(Secret),
    Teams(Secret),
    Pushover { user: Secret, token: Option<Secret> },
    Heartbeat(Secret),
}

/// Escapes text for Discord, which renders Markdown in embeds and turns what begins with `@` or `<` into mentions.
fn discord_text(text: &str, most: usize) -> String {
    let mut plain = String::new();
    for c in cut(text, most / 2).chars() {
        if matches!(c, '\\' | '*' | '_' | '~' | '`' | '|' | '>' | '<' | '[' | ']' | '(' | ')' | '#' | '-' | '+' | ':') {
            plain.push('\\');
        }
        plain.push(c);
        if c == '@' {
            plain.push('\u{200b}');
        }
    }
    plain
}

/// The description's share of the 6,000 characters that an embed may have; the rest is for its title and fields.
const DISCORD_TEXT: usize = 2_600;

pub(crate) fn discord(message: &Message) -> Value {
    let mut description = discord_text(&message.text, 1900);
    let mut add = |line: String| {
        if description.chars().count() + line.chars().count() < DISCORD_TEXT {
            description.push_str(&line);
        }
    };
    for item in &message.items {
        let about = discord_text(&format!("{} {}", item.at, item.event), 160);
        add(format!("\n{} {} · {about}", item.tone.sign(), discord_text(&item.title, 240)));
    }
    // Discord refuses links to hosts without a dot, and the whole message with them.
    let link = message.link.as_ref().filter(|link| has_public_form(link));
    if let (None, Some(link)) = (link, &message.link) {
        add(format!("\n{}", discord_text(link, 500)));
    }
    let fields: Vec<Value> = message
        .facts
        .iter()
        .take(25)
        .map(
            |fact| json!({"name": fact.name, "value": discord_text(&fact.value, 400), "inline": fact.value.len() < 40}),
        )
        .collect();
    let mut embed = json!({
        "title": discord_text(&message.title, 250),
        "description": description,
        "color": message.tone.colour(),
        "fields": fields,
        "footer": {"text": format!("{} · {}", message.at, message.event)},
    });
    if let Some(link) = link {
        embed["url"] = json!(link);
    }
    json!({"username": "Holdfast", "allowed_mentions": {"parse": []}, "embeds": [embed]})
}

fn has_public_form(link: &str) -> bool {
    let Ok(url) = Url::parse(link) else { return false };
    match url.host() {
        Some(Host::Domain(name)) => name.contains('.'),
        Some(_) => true,
        None => false,
    }
}

/// All foreign text is `plain_text`, which Slack shows as it is.
pub(crate) fn slack(message: &Message) -> Value {
    let plain = |text: &str, most: usize| json!({"type": "plain_text", "text": cut(text, most), "emoji": false});
    let mut blocks = vec![
        json!({"type": "header", "text": plain(&format!("{} {}", message.tone.sign(), message.title), 150)}),
        json!({"type": "section", "text": plain(&message.text, 2900)}),
    ];
    for item in message.items.iter().take(25) {
        let text = format!("{} {} ({} {})\n{}", item.tone.sign(), item.title, item.at, item.event, item.text);
        blocks.push(json!({"type": "section", "text": plain(&text, 1000)}));
    }
    for facts in message.facts.chunks(10) {
        let fields: Vec<Value> =
            facts.iter().map(|fact| plain(&format!("{}\n{}", fact.name, fact.value), 1900)).collect();
        blocks.push(json!({"type": "section", "fields": fields}));
    }
    if let Some(link) = &message.link {
        let link = json!({"type": "mrkdwn", "text": format!("<{}|Open in Holdfast>", slack_text(link))});
        blocks.push(json!({"type": "section", "text": link}));
    }
    blocks.push(json!({"type": "context", "elements": [plain(&format!("{} · {}", message.at, message.event), 300)]}));
    // `text` is for lists and notifications, where blocks are not shown.
    json!({"text": slack_text(&cut(&message.title, 200)), "mrkdwn": false, "blocks": blocks})
}

/// Escapes the three characters that are special in Slack's own markup.
fn slack_text(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// How much of a message its items may take; Teams accepts 28 KB in all.
const TEAMS_ITEMS_BYTES: usize = 14_000;

/// The first items, as many as fit into `most` bytes.
fn within(items: &[Item], most: usize) -> &[Item] {
    let mut bytes = 0;
    let fits = |item: &&Item| {
        bytes += item.title.len() + item.text.len() + item.at.len() + 200;
        bytes <= most
    };
    &items[..items.iter().take_while(fits).count()]
}

/// Adaptive cards interpret some Markdown in text blocks and facts, but none in runs of rich text.
pub(crate) fn teams(message: &Message) -> Value {
    let run = |text: &str, weight: &str| json!({"type": "TextRun", "text": text, "weight": weight});
    let rich = |runs: Value| json!({"type": "RichTextBlock", "inlines": runs});
    let colour = match message.tone {
        crate::Tone::Good => "good",
        crate::Tone::Bad => "attention",
        crate::Tone::Warning => "warning",
        crate::Tone::Note => "accent",
    };
    let title = format!("{} {}", message.tone.sign(), message.title);
    let mut body = vec![
        rich(json!([{"type": "TextRun", "text": title, "weight": "bolder", "size": "large", "color": colour}])),
        rich(json!([run(&message.text, "default")])),
    ];
    for item in within(&message.items, TEAMS_ITEMS_BYTES) {
        let title = format!("{} {} ", item.tone.sign(), item.title);
        let text = format!("{} {} {}", item.at, item.event, item.text);
        body.push(rich(json!([run(&title, "bolder"), run(&text, "default")])));
    }
    for fact in &message.facts {
        body.push(rich(json!([run(&format!("{}: ", fact.name), "bolder"), run(&fact.value, "default")])));
    }
    let about = format!("{} · {}", message.at, message.event);
    body.push(rich(json!([{"type": "TextRun", "text": about, "size": "small", "isSubtle": true}])));
    let actions: Vec<Value> = message
        .link
        .iter()
        .map(|link| json!({"type": "Action.OpenUrl", "title": "Open in Holdfast", "url": link}))
        .collect();
    json!({
        "type": "message",
        "summary": message.title,
        "attachments": [{
            "contentType": "application/vnd.microsoft.card.adaptive",
            "contentUrl": null,
            "content": {
                "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
                "type": "AdaptiveCard",
                "version": "1.4",
                "msteams": {"width": "Full"},
                "body": body,
                "actions": actions,
            },
        }],
    })
}

/// Older connectors use another card format, in which `markdown: false` turns Markdown off; HTML is escaped.
pub(crate) fn teams_connector(message: &Message) -> Value {
    let plain = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let facts: Vec<Value> =
        message.facts.iter().map(|fact| json!({"name": fact.name, "value": plain(&fact.value)})).collect();
    // The card's own title would be interpreted as Markdown; that of a section is not.
    let title = plain(&format!("{} {}", message.tone.sign(), message.title));
    let mut sections =
        vec![json!({"activityTitle": title, "text": plain(&message.text), "facts": facts, "markdown": false})];
    for item in within(&message.items, TEAMS_ITEMS_BYTES) {
        sections.push(json!({
            "activityTitle": plain(&format!("{} {}", item.tone.sign(), item.title)),
            "activitySubtitle": format!("{} {}", item.at, item.event),
            "text": plain(&item.text),
            "markdown": false,
        }));
    }
    sections.push(json!({"text": format!("{} · {}", message.at, message.event), "markdown": false}));
    let actions: Vec<Value> = message
        .link
        .iter()
        .map(
            |link| json!({"@type": "OpenUrl", "name": "Open in Holdfast", "targets": [{"os": "default", "uri": link}]}),
        )
        .collect();
    json!({
        "@type": "MessageCard",
        "@context": "https://schema.org/extensions",
        "themeColor": format!("{:06x}", message.tone.colour()),
        "summary": plain(&message.title),
        "sections": sections,
        "potentialAction": actions,
    })
}

/// Whether a Teams URL belongs to an older connector.
pub(crate) fn is_connector(url: &Url) -> bool {
    // Also recognised behind a proxy: only connectors have this part in their path.
    let has_old_path = url.path_segments().is_some_and(|mut parts| parts.any(|part| part == "IncomingWebhook"));
    let has_old_host = match url.host() {
        Some(Host::Domain(host)) => {
            matches!(host, "outlook.office.com" | "outlook.office365.com") || host.ends_with(".webhook.office.com")
        }
        _ => false,
    };
    has_old_path || has_old_host
}

/// Without `html` or `monospace`, Pushover shows everything as plain text.
pub(crate) fn pushover(message: &Message, user: &Secret, token: &Secret) -> Value {
    let mut text = message.text.clone();
    for item in &message.items {
        text.push_str(&format!("\n{} {}", item.tone.sign(), item.title));
    }
    for fact in &message.facts {
        text.push_str(&format!("\n{}: {}", fact.name, fact.value));
    }
    // High for failures: those are shown in the recipient's Pushover quiet hours too, unless they set it otherwise
    // there.
    let priority = i32::from(message.tone == crate::Tone::Bad);
    let mut body = json!({
        "token": token.reveal(),
        "user": user.reveal(),
        "title": cut(&message.title, 250),
        "message": format!("{}\n[{}]", cut(&text, 990), message.event),
        "priority": priority,
        "timestamp": message.at_micros / 1_000_000,
    });
    if let Some(link) = message.link.as_ref().filter(|link| link.len() <= 512) {
        body["url"] = json!(link);
        body["url_title"] = json!("Open in Holdfast");
    }
    body
}

/// The heartbeat URL for this ping: the suffix is appended to its path.
pub(crate) fn ping_url(url: &Url, ping: &Ping) -> Url {
    let mut url = url.clone();
    if let Some(suffix) = &ping.suffix {
        let path = format!("{}/{suffix}", url.path().trim_end_matches('/'));
        url.set_path(&path);
    }
    url
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_connectors_are_recognised_by_their_url() {
        let is = |url: &str| is_connector(&Url::parse(url).unwrap());
        assert!(is("https://acme.webhook.office.com/webhookb2/x"));
        assert!(is("https://outlook.office.com/webhook/x"));
        assert!(is("https://proxy.example/webhookb2/a@b/IncomingWebhook/c/d"));
        assert!(!is("https://prod-1.westeurope.logic.azure.com/workflows/x"));
        assert!(!is("https://webhook.office.com.evil.example/x"));
        assert!(!is("http://127.0.0.1/webhook.office.com"));
    }

    #[test]
    fn heartbeat_suffixes_are_appended_to_the_path() {
        let at = |url: &str, suffix: Option<&str>| {
            let ping = Ping { suffix: suffix.map(str::to_owned), text: String::new() };
            ping_url(&Url::parse(url).unwrap(), &ping).to_string()
        };
        assert_eq!(at("https://hc.example/ping/abc", None), "https://hc.example/ping/abc");
        assert_eq!(at("https://hc.example/ping/abc", Some("start")), "https://hc.example/ping/abc/start");
        assert_eq!(at("https://hc.example/ping/abc/?x=1", Some("fail")), "https://hc.example/ping/abc/fail?x=1");
    }

    #[test]
    fn markup_in_user_text_is_escaped() {
        assert_eq!(
            discord_text("**@everyone** <@1> [a](b)", 1000),
            "\\*\\*@\u{200b}everyone\\*\\* \\<@\u{200b}1\\> \\[a\\]\\(b\\)"
        );
        assert_eq!(slack_text("<!channel> & co"), "&lt;!channel&gt; &amp; co");
    }
}
