//! Elements shared by several pages: states with their symbol and label, list pagination, and the form page.

use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;
use holdfast_app::Caller;
use holdfast_core::backup::Verification;
use holdfast_core::failure::FailureCode;
use holdfast_core::page::{Page, PageRequest, Sort};
use holdfast_core::run::{RunKind, RunStatus};
use holdfast_core::task_health::TaskHealth;
use holdfast_store::Listing;
use holdfast_store::runs::RunRow;

use crate::fields::Group;
use crate::form::Form;
use crate::frame::Frame;
use crate::human::{Markup, Reader, escaped};
use crate::page::render;
use crate::translator::Translator;

/// Rows per page of a list.
pub(crate) const PER_PAGE: i64 = 50;

/// A state with its colour, symbol and label.
pub(crate) fn state(class: &str, word: &str) -> Markup {
    let shape = match class {
        "good" => "✓",
        "running" => "▶",
        "attention" => "!",
        "failed" => "✕",
        _ => "○",
    };
    Markup(format!("<span class=\"state {class}\"><span aria-hidden=\"true\">{shape}</span> {}</span>", escaped(word)))
}

pub(crate) fn health(t: Translator, health: TaskHealth) -> Markup {
    let class = match health {
        TaskHealth::Good => "good",
        TaskHealth::Running => "running",
        TaskHealth::Warned | TaskHealth::Overdue => "attention",
        TaskHealth::Failed => "failed",
        TaskHealth::New | TaskHealth::Paused => "",
    };
    state(class, &t.say(&format!("health-{}", health.as_str())))
}

pub(crate) fn run_state(t: Translator, run: &RunRow) -> Markup {
    let class = match run.status {
        RunStatus::Successful if run.warnings > 0 => "attention",
        RunStatus::Successful => "good",
        RunStatus::Running => "running",
        RunStatus::Failed => "failed",
        RunStatus::Queued | RunStatus::Cancelled => "",
    };
    let word = if class == "attention" { t.say("run-warned") } else { t.say(&format!("run-{}", run.status.as_str())) };
    state(class, &word)
}

pub(crate) fn proof(t: Translator, verification: Verification) -> Markup {
    let class = match verification {
        Verification::Verified => "good",
        Verification::Corrupt | Verification::Missing => "failed",
        Verification::Unverified => "",
    };
    state(class, &t.say(&format!("proof-{}", verification.as_str())))
}

/// The label of a run's kind.
pub(crate) fn run_kind(t: Translator, kind: RunKind) -> String {
    t.say(&format!("kind-{}", kind.as_str()))
}

/// What to do about a failure. Falls back to the service's own English advice if a language has none.
pub(crate) fn advice(t: Translator, code: Option<FailureCode>) -> String {
    let Some(code) = code else { return String::new() };
    t.find(&format!("failure-{}", code.as_str().replace('_', "-"))).unwrap_or_else(|| code.advice().to_owned())
}

/// How long a run took, or has taken so far.
pub(crate) fn run_duration(reader: &Reader, run: &RunRow) -> String {
    let Some(started) = run.started_at else { return String::new() };
    let end = run.finished_at.map_or(reader.now, |at| at.0);
    reader.duration(end.as_microsecond() - started.0.as_microsecond())
}

/// The listing for one page of the caller's own rows.
pub(crate) fn listing(caller: &Caller, query: &Form, newest_first: bool) -> Listing {
    let page = query.text("page").parse().unwrap_or(1_i64).clamp(1, holdfast_core::limits::PAGE_MAX);
    let search = Some(query.text("search")).filter(|text| !text.trim().is_empty());
    let sort = if newest_first { Sort::IdDescending } else { Sort::Id };
    Listing { search, sort, ..Listing::new(caller.user, PageRequest { page, per_page: PER_PAGE }) }
}

/// The listing for all of the caller's rows, for selection lists.
pub(crate) fn everything(caller: &Caller) -> Listing {
    /// A selection list with more items would be unusable.
    const MOST: i64 = 1000;
    Listing::new(caller.user, PageRequest { page: 1, per_page: MOST })
}

/// Links to the other pages of a list.
#[derive(Default)]
pub(crate) struct Pager {
    pub text: String,
    pub earlier: Option<String>,
    pub later: Option<String>,
}

impl Pager {
    pub(crate) fn of<T>(reader: &Reader, page: &Page<T>, path: &str, query: &Form) -> Self {
        if page.total <= page.request.per_page && page.request.page == 1 {
            return Self::default();
        }
        let address = |number: i64| {
            let mut pairs = url::form_urlencoded::Serializer::new(String::new());
            for (name, value) in
                query.fields().filter(|(name, value)| !["page", "said"].contains(name) && !value.is_empty())
            {
                pairs.append_pair(name, value);
            }
            pairs.append_pair("page", &number.to_string());
            format!("{path}?{}", pairs.finish())
        };
        let (here, last) = (page.request.page, page.last_page());
        let first = page.request.offset() + 1;
        let until = (page.request.offset() + page.items.len() as i64).max(first);
        let range = format!("{}–{}", reader.number(first), reader.number(until));
        Self {
            text: reader.t.with2("list-range", "range", range, "total", reader.number(page.total)),
            earlier: (here > 1).then(|| address((here - 1).min(last))),
            later: (here < last).then(|| address(here + 1)),
        }
    }
}

/// A page that consists of one form.
#[derive(Template, Default)]
#[template(path = "form.html")]
pub(crate) struct FormPage {
    pub frame: Frame,
    pub title: String,
    pub intro: String,
    /// Errors that do not belong to a field.
    pub problems: Vec<String>,
    pub before: Markup,
    pub after: Markup,
    pub action: String,
    pub groups: Vec<Group>,
    /// Additional hidden fields.
    pub inside: Markup,
    pub submit: String,
    /// Additional submit buttons: the value of `do`, and the label.
    pub also: Vec<(&'static str, String)>,
    /// Address and title of the parent page.
    pub up: Option<(String, String)>,
    pub is_dangerous: bool,
}

impl FormPage {
    pub(crate) fn show(&self, status: StatusCode) -> Response {
        render(status, self)
    }
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    use crate::fields::{Fields, Preview, Values};
    use holdfast_core::input::Errors;
    let (values, errors) = (
        Values::default().set("a", hostile).set("b", hostile),
        Errors::one("a", holdfast_core::refusal::Rule::Required),
    );
    let fields = Fields { t: frame.t, values: &values, errors: &errors };
    let all = vec![
        fields.line("a", hostile.into()).hint(hostile.into()).aside(hostile.into(), "browse").when("b=x").required(),
        fields.area("b", hostile.into()),
        fields.select("c", hostile.into(), [(hostile.into(), hostile.into())]),
        fields.checks("d", hostile.into(), [(hostile.into(), hostile.into())]),
        fields.switch("e", hostile.into()),
        fields.password("a", hostile.into(), "new-password"),
    ];
    let content = Markup("<p>next</p>".into());
    let preview = Preview { id: "p", address: "/p", fields: "a b".into(), content, button: hostile.into() };
    let page = FormPage {
        frame: frame.clone(),
        title: hostile.into(),
        intro: hostile.into(),
        problems: vec![hostile.into()],
        action: "/x".into(),
        groups: vec![
            Group::new(hostile.into(), all.clone()).when("b=x").preview(preview),
            Group::new(hostile.into(), all).folded(),
        ],
        submit: hostile.into(),
        also: vec![("size", hostile.into())],
        up: Some(("/".into(), hostile.into())),
        is_dangerous: true,
        ..FormPage::default()
    };
    vec![page.render().unwrap()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_a_label_in_every_language() {
        for (code, _) in Translator::all() {
            let t = Translator::of(code);
            for known in TaskHealth::ALL {
                let html = health(t, *known).0;
                assert!(!html.contains("health-"), "{code} {html}");
            }
            for code in FailureCode::ALL {
                assert!(advice(t, Some(*code)).len() > 10);
            }
            for kind in RunKind::ALL {
                assert!(!run_kind(t, *kind).contains("kind-"));
            }
        }
    }

    #[test]
    fn links_to_other_pages_keep_the_filters() {
        let request = PageRequest { page: 2, per_page: 50 };
        let page = Page { items: vec![(); 50], total: 120, request, end: None };
        let query = Form::of_query(Some("search=a%26b&page=2&tag=&said=x"));
        let pager = Pager::of(&Reader::default(), &page, "/tasks", &query);
        assert_eq!(pager.earlier.as_deref(), Some("/tasks?search=a%26b&page=1"));
        assert_eq!(pager.later.as_deref(), Some("/tasks?search=a%26b&page=3"));
        assert!(pager.text.contains("51–100") && pager.text.contains("120"), "{}", pager.text);
    }
}
