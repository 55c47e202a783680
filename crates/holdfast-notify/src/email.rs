//! Mails: a plain-text part and an HTML part that say the same, and a chart for the weekly summary.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use askama::Template;
use holdfast_core::random;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::message::{Attachment, Mailbox, MultiPart, SinglePart};

use crate::chart;
use crate::message::{Message, Tone};
use crate::summary::Summary;
use crate::text::cut;

/// Why a mail could not be assembled: either a bug in Holdfast, or an address that is not valid.
#[derive(Debug)]
pub(crate) struct InvalidMail(pub String);

#[derive(Template)]
#[template(path = "message.html")]
struct MessageMail<'a> {
    message: &'a Message,
    colour: String,
    lines: Vec<&'a str>,
}

impl MessageMail<'_> {
    fn css(tone: &Tone) -> String {
        css(*tone)
    }

    /// The CSS class whose colour is lighter on a dark background.
    fn class(tone: &Tone) -> &'static str {
        match tone {
            Tone::Good => "good",
            Tone::Bad => "bad",
            Tone::Warning | Tone::Note => "soft",
        }
    }
}

#[derive(Template)]
#[template(path = "summary.html")]
struct SummaryMail<'a> {
    summary: &'a Summary,
    colour: String,
    chart_text: String,
}

fn css(tone: Tone) -> String {
    format!("#{:06x}", tone.colour())
}

/// The contents of a mail, before it has an address.
pub(crate) struct Mail {
    pub subject: String,
    pub event: String,
    pub at_micros: i64,
    pub text: String,
    pub html: String,
    pub picture: Option<Vec<u8>>,
}

pub(crate) fn of_message(message: &Message) -> Result<Mail, InvalidMail> {
    let mut text = format!("{} {}\n{}\n\n{}\n", message.tone.sign(), message.title, message.at, message.text);
    for item in &message.items {
        write!(text, "\n{} {}\n  {} {}\n  {}\n", item.tone.sign(), item.title, item.at, item.event, item.text)
            .map_err(unfit)?;
    }
    if !message.facts.is_empty() {
        text.push('\n');
    }
    for fact in &message.facts {
        writeln!(text, "{}: {}", fact.name, fact.value).map_err(unfit)?;
    }
    if let Some(link) = &message.link {
        write!(text, "\n{link}\n").map_err(unfit)?;
    }
    write!(text, "\nEvent {}\n", message.event).map_err(unfit)?;
    let page = MessageMail { message, colour: css(message.tone), lines: message.text.lines().collect() };
    Ok(Mail {
        subject: format!("[Holdfast] {}", cut(&message.title, 150)),
        event: message.event.clone(),
        at_micros: message.at_micros,
        text,
        html: page.render().map_err(unfit)?,
        picture: None,
    })
}

pub(crate) fn of_summary(summary: &Summary) -> Result<Mail, InvalidMail> {
    let summary = &summary.cleaned();
    let mut text = format!("{}\n{}\n\n{}\n{}\n\n", summary.title, summary.week, summary.headline(), summary.stored());
    let mut chart_text = String::from("Runs by day:");
    for day in &summary.days {
        writeln!(text, "{:<4} {} successful, {} failed", day.name, day.succeeded, day.failed).map_err(unfit)?;
        write!(chart_text, " {} {} successful, {} failed;", day.name, day.succeeded, day.failed).map_err(unfit)?;
    }
    for task in &summary.tasks {
        write!(text, "\n{}\n", task.label).map_err(unfit)?;
        if let Some(attention) = &task.attention {
            writeln!(text, "  ! {attention}").map_err(unfit)?;
        }
        let (results, sizes, restorable) = (task.results(), task.sizes(), task.restorable());
        write!(text, "  Runs: {results}\n  Size: {sizes}\n  Can be restored: {restorable}\n").map_err(unfit)?;
    }
    if summary.more_tasks > 0 {
        write!(text, "\nand {} more\n", summary.more_tasks).map_err(unfit)?;
    }
    write!(text, "\n{}\n\nEvent {}\n", summary.link, summary.event).map_err(unfit)?;
    let colour = css(if summary.needing == 0 { Tone::Good } else { Tone::Warning });
    Ok(Mail {
        subject: format!("[Holdfast] {}", cut(&summary.title, 150)),
        event: summary.event.clone(),
        at_micros: summary.at_micros,
        text,
        html: SummaryMail { summary, colour, chart_text }.render().map_err(unfit)?,
        picture: Some(chart::png(&summary.days).map_err(unfit)?),
    })
}

fn unfit(error: impl std::fmt::Display) -> InvalidMail {
    InvalidMail(error.to_string())
}

/// The mail as it is sent.
pub(crate) fn assemble(mail: Mail, from: &Mailbox, to: &str) -> Result<lettre::Message, InvalidMail> {
    let to: Mailbox = to.parse().map_err(|_| InvalidMail("This is not a valid email address.".to_owned()))?;
    let header = |name: &'static str, value: String| HeaderValue::new(HeaderName::new_from_ascii_str(name), value);
    let copy = random::digest(&format!("{to} {} {}", mail.subject, mail.text));
    let seconds = u64::try_from(mail.at_micros / 1_000_000).unwrap_or(0);
    let html = SinglePart::html(mail.html);
    let shown = match mail.picture {
        None => MultiPart::alternative().singlepart(SinglePart::plain(mail.text)).singlepart(html),
        Some(picture) => {
            let kind: ContentType = "image/png".parse().map_err(unfit)?;
            let picture = Attachment::new_inline("chart".to_owned()).body(picture, kind);
            MultiPart::alternative()
                .singlepart(SinglePart::plain(mail.text))
                .multipart(MultiPart::related().singlepart(html).singlepart(picture))
        }
    };
    lettre::Message::builder()
        .from(from.clone())
        .to(to)
        .subject(mail.subject)
        .date(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
        // The same at every attempt, so that mail programs can hide duplicates; different for another recipient or
        // text.
        .message_id(Some(format!("<{}.{}@{}>", mail.event, random::hex(&copy[..6]), from.email.domain())))
        .raw_header(header("Auto-Submitted", "auto-generated".to_owned()))
        .raw_header(header("X-Holdfast-Event", mail.event.clone()))
        .multipart(shown)
        .map_err(unfit)
}
