//! The overview: the first line answers "is everything backed up?", followed by what needs attention.

use std::sync::Arc;

use askama::Template;
use axum::extract::State;
use axum::http::StatusCode;
use holdfast_app::overview::{self, Card, DayResult, Overview};
use holdfast_app::{destinations, servers};
use holdfast_core::clock;
use holdfast_core::destination::Reachability;
use holdfast_core::page::PageRequest;
use holdfast_core::server::Connectivity;
use holdfast_core::task_health::TaskHealth;
use holdfast_store::Listing;
use holdfast_store::daily_stats::DayRow;

use super::runs::RunLine;
use super::squares::{Square, squares};
use super::tasks;
use crate::chart::{self, Point};
use crate::frame::{Frame, Section};
use crate::human::{Markup, Reader};
use crate::page::render;
use crate::problem::PageResult;
use crate::session::SignedIn;
use crate::state::Ui;
#[cfg(test)]
use crate::view::state;
use crate::view::{everything, health};

#[derive(Template)]
#[template(path = "overview.html")]
struct OverviewPage {
    frame: Frame,
    /// The first line of the page, and its CSS class.
    answer: String,
    answer_class: &'static str,
    proven: String,
    proven_at: Option<Markup>,
    needs: Vec<Need>,
    /// Tasks whose old backups are not removed: id, label and reason.
    held: Vec<(i64, String, String)>,
    counts: Vec<(Markup, String, String)>,
    next: Option<(i64, String, Markup)>,
    stored: Markup,
    stored_chart: Markup,
    duration_chart: Markup,
    duration: String,
    calendar: Vec<Square>,
    days: Vec<Day>,
    cards: Vec<Line>,
    upcoming: Vec<(i64, String, Markup)>,
    live: Vec<RunLine>,
    /// The steps to the first verified backup; empty once there is one.
    steps: Vec<Step>,
}

struct Need {
    text: String,
    address: String,
}

struct Step {
    is_done: bool,
    text: String,
    address: String,
    action: String,
}

struct Day {
    date: String,
    successful: i64,
    failed: i64,
    cancelled: i64,
    stored: Option<Markup>,
    average: String,
}

/// A task with its results of the last days and its backup sizes.
struct Line {
    task: tasks::Line,
    squares: Vec<Square>,
    spark: Markup,
    growth: String,
    size: Option<Markup>,
}

fn of_day(row: &DayRow) -> DayResult {
    match (row.figures.successful, row.figures.failed) {
        (0, 0) => DayResult::Nothing,
        (_, 0) => DayResult::Good,
        (0, _) => DayResult::Bad,
        _ => DayResult::Mixed,
    }
}

fn average(reader: &Reader, row: &DayRow) -> String {
    match row.figures.successful {
        0 => String::new(),
        runs => reader.duration(row.figures.busy_micros / runs),
    }
}

fn line(reader: &Reader, card: &Card) -> Line {
    let growth = match (card.sizes.first(), card.sizes.last()) {
        (Some(first), Some(last)) if *first > 0 && card.sizes.len() > 1 => {
            let percent = (last - first) * 100 / first;
            reader.t.with("overview-growth", "percent", format!("{percent:+}"))
        }
        _ => String::new(),
    };
    Line {
        task: tasks::line(reader, &card.task, Some(&card.health), Vec::new()),
        squares: squares(reader, &card.days),
        spark: chart::spark(&card.sizes),
        growth,
        size: card.sizes.last().map(|size| reader.bytes(*size)),
    }
}

/// The first line of the page, and its CSS class.
fn answer(reader: &Reader, overview: &Overview) -> (String, &'static str) {
    let t = reader.t;
    let count = |wanted: fn(TaskHealth) -> bool| -> i64 {
        overview.counts.iter().filter(|count| wanted(count.health)).map(|count| count.tasks).sum()
    };
    let wanting = count(TaskHealth::needs_attention);
    let held = i64::try_from(overview.held.len()).unwrap_or(i64::MAX);
    let other = overview.needs.damaged_backups + overview.needs.unreachable_destinations + held;
    if overview.tasks == 0 {
        (t.say("overview-nothing"), "attention")
    } else if wanting > 0 {
        (t.with("overview-wanting", "n", wanting), "failed")
    } else if other > 0 {
        (t.with("overview-wanting-other", "n", other), "failed")
    } else {
        let good = count(|health| health == TaskHealth::Good || health == TaskHealth::Warned);
        match overview.tasks - good {
            0 => (t.say("overview-safe"), "good"),
            _ if good == 0 => (t.say("overview-not-yet"), "attention"),
            rest => (t.with2("overview-partly", "good", reader.number(good), "rest", rest), "attention"),
        }
    }
}

fn needs(reader: &Reader, overview: &Overview) -> Vec<Need> {
    let (t, known) = (reader.t, overview.needs);
    let all = [
        (known.damaged_backups, "overview-damaged", "/backups?status=damaged"),
        (known.offline_servers, "overview-offline", "/servers"),
        (known.unreachable_destinations, "overview-unreachable", "/destinations"),
        (known.undelivered_notices, "overview-undelivered", "/notices?status=undelivered"),
    ];
    let text = |key: &str, count: i64| match key {
        "overview-damaged" => t.with("overview-damaged", "n", count),
        "overview-offline" => t.with("overview-offline", "n", count),
        "overview-unreachable" => t.with("overview-unreachable", "n", count),
        _ => t.with("overview-undelivered", "n", count),
    };
    let need = |(count, key, address): (i64, &str, &str)| Need { text: text(key, count), address: address.to_owned() };
    all.into_iter().filter(|(count, ..)| *count > 0).map(need).collect()
}

/// The steps to the first verified backup; empty once there is one.
async fn steps(ui: &Ui, person: &SignedIn, overview: &Overview) -> Result<Vec<Step>, crate::problem::PageError> {
    if overview.proven_at.is_some() {
        return Ok(Vec::new());
    }
    let one = Listing { page: PageRequest { page: 1, per_page: 1 }, ..everything(&person.caller) };
    let server = servers::list(&ui.app, &one).await?.items.into_iter().next();
    let destinations = destinations::list(&ui.app, &everything(&person.caller)).await?.items;
    let is_reachable = destinations.iter().any(|row| row.status == Reachability::Reachable);
    let destination = destinations.first();
    let task = overview.cards.first();
    let has_backup = overview.stored_bytes > 0;
    let t = person.t();
    let is_online = server.as_ref().is_some_and(|row| row.connectivity == Connectivity::Online);
    let to =
        |prefix: &str, id: Option<i64>| id.map_or_else(|| format!("/{prefix}/new"), |id| format!("/{prefix}/{id}"));
    let task_address = to("tasks", task.map(|card| card.task.id).map(|id| id.0));
    Ok(vec![
        Step {
            is_done: is_online,
            text: t.say("step-server"),
            address: to("servers", server.map(|row| row.id).map(|id| id.0)),
            action: t.say("step-server-do"),
        },
        Step {
            is_done: is_reachable,
            text: t.say("step-destination"),
            address: to("destinations", destination.map(|row| row.id).map(|id| id.0)),
            action: t.say("step-destination-do"),
        },
        Step {
            is_done: task.is_some(),
            text: t.say("step-task"),
            address: task_address.clone(),
            action: t.say("step-task-do"),
        },
        Step { is_done: has_backup, text: t.say("step-run"), address: task_address, action: t.say("step-run-do") },
        Step {
            is_done: false,
            text: t.say("step-prove"),
            address: "/backups".to_owned(),
            action: t.say("step-prove-do"),
        },
    ])
}

pub(crate) async fn show(State(ui): State<Arc<Ui>>, person: SignedIn) -> PageResult {
    let overview = overview::show(&ui.app, &person.caller).await?;
    let reader = &person.reader;
    let t = reader.t;
    let (answer, answer_class) = answer(reader, &overview);
    let day_at = |text: &str| clock::noon_of(text, &reader.zone).unwrap_or(reader.now);
    let days: Vec<DayResult> = overview.days.iter().map(of_day).collect();
    let stored: Vec<Point> = overview
        .days
        .iter()
        .filter_map(|row| row.stored_bytes.map(|bytes| Point { value: bytes, label: reader.size(bytes) }))
        .collect();
    let took = overview.days.iter().map(|row| Point {
        value: if row.figures.successful == 0 { 0 } else { row.figures.busy_micros / row.figures.successful },
        label: format!("{}: {}", reader.date(day_at(&row.day)), average(reader, row)),
    });
    let took: Vec<Point> = took.collect();
    let upcoming: Vec<(i64, String, Markup)> =
        overview.upcoming.iter().map(|row| (row.id.0, row.label.clone(), reader.when(row.next_run_at.0))).collect();
    let counts = overview.counts.iter().map(|count| {
        let address = format!("/tasks?state={}", count.health.as_str());
        (health(t, count.health), reader.number(count.tasks), address)
    });
    let page = OverviewPage {
        frame: person.frame(&ui, Section::Overview).await?,
        answer,
        answer_class,
        proven: match overview.proven_at {
            Some(_) => t.with2(
                "overview-proven",
                "proven",
                reader.number(overview.proven_tasks),
                "tasks",
                reader.number(overview.tasks),
            ),
            None => t.say("overview-unproven"),
        },
        proven_at: overview.proven_at.map(|at| reader.when(at)),
        needs: needs(reader, &overview),
        held: overview.held.iter().map(|row| (row.id.0, row.label.clone(), tasks::held_words(t, row))).collect(),
        counts: counts.collect(),
        next: upcoming.first().cloned(),
        stored: reader.bytes(overview.stored_bytes),
        stored_chart: chart::line(&stored, &t.say("overview-stored")),
        duration: overview
            .days
            .iter()
            .rev()
            .find(|row| row.figures.successful > 0)
            .map(|row| average(reader, row))
            .unwrap_or_default(),
        duration_chart: chart::bars(&took, &t.say("overview-durations")),
        calendar: squares(reader, &days),
        days: overview
            .days
            .iter()
            .rev()
            .map(|row| Day {
                date: reader.date(day_at(&row.day)),
                successful: row.figures.successful,
                failed: row.figures.failed,
                cancelled: row.figures.cancelled,
                stored: row.stored_bytes.map(|bytes| reader.bytes(bytes)),
                average: average(reader, row),
            })
            .collect(),
        cards: overview.cards.iter().map(|card| line(reader, card)).collect(),
        upcoming,
        live: RunLine::named(&ui, &person, &overview.live).await?,
        steps: steps(&ui, &person, &overview).await?,
    };
    Ok(render(StatusCode::OK, &page))
}

#[cfg(test)]
pub(crate) fn samples(frame: &Frame, hostile: &str) -> Vec<String> {
    let time = || Some(Markup("<time>now</time>".into()));
    let line = Line {
        task: tasks::line_sample(hostile),
        squares: squares(&Reader::default(), &[DayResult::Bad, DayResult::Good]),
        spark: chart::spark(&[1, 2]),
        growth: "+3 %".into(),
        size: Some(Markup("<data value=\"1\">1 B</data>".into())),
    };
    let page = |cards, steps| OverviewPage {
        frame: frame.clone(),
        answer: "1 task needs attention.".into(),
        answer_class: "failed",
        proven: "1 of 1".into(),
        proven_at: time(),
        held: vec![(1, hostile.into(), "On hold.".into())],
        needs: vec![Need { text: "1 server".into(), address: "/servers".into() }],
        counts: vec![(state("failed", "failed"), "1".into(), "/tasks?state=failed".into())],
        next: Some((1, hostile.into(), Markup("<time>now</time>".into()))),
        stored: Markup("<data value=\"1\">1 B</data>".into()),
        stored_chart: Markup::default(),
        duration_chart: Markup::default(),
        duration: "3 s".into(),
        calendar: squares(&Reader::default(), &[DayResult::Mixed]),
        days: vec![Day {
            date: "Monday".into(),
            successful: 1,
            failed: 2,
            cancelled: 0,
            stored: time(),
            average: "3 s".into(),
        }],
        cards,
        upcoming: vec![(1, hostile.into(), Markup("<time>now</time>".into()))],
        live: vec![RunLine::sample(hostile)],
        steps,
    };
    let step = |is_done| Step { is_done, text: "Do".into(), address: "/servers/new".into(), action: "Go".into() };
    vec![
        page(vec![line], Vec::new()).render().unwrap(),
        page(Vec::new(), vec![step(true), step(false)]).render().unwrap(),
    ]
}
