//! The tables and the chart of the measurements.

use std::fmt::Write as _;

use crate::measuring::Cost;
use crate::rivals::Tool;

/// One scenario of one source, measured with each tool.
pub struct Row {
    pub what: String,
    pub scenario: &'static str,
    pub rtt: u32,
    pub to: &'static str,
    pub costs: Vec<(Tool, Cost)>,
    /// How many times as long as Holdfast a rival should take at least.
    pub goals: &'static [(Tool, f64)],
}

impl Row {
    fn cost(&self, tool: Tool) -> Option<Cost> {
        self.costs.iter().find(|(of, _)| *of == tool).map(|(_, cost)| *cost)
    }

    /// How many times as long as Holdfast a rival takes: above 1, Holdfast is faster.
    fn ratio(&self, tool: Tool) -> Option<f64> {
        Some(self.cost(tool)?.wall / self.cost(Tool::Holdfast)?.wall)
    }

    fn title(&self) -> String {
        format!("{} | {} ms | {} | {}", self.what, self.rtt, self.to, self.scenario)
    }

    fn goals(&self) -> String {
        let goal = |(tool, at_least): &(Tool, f64)| {
            let ratio = self.ratio(*tool)?;
            let outcome = if ratio >= *at_least { "reached" } else { "missed" };
            Some(format!("{at_least:.1} × {}: {outcome}", tool.title()))
        };
        self.goals.iter().filter_map(goal).collect::<Vec<_>>().join("; ")
    }
}

/// Seconds, beside how many times as long as Holdfast that is.
pub fn seconds(rows: &[Row]) -> String {
    let mut text = "| what | round trip | to | run |".to_owned();
    for tool in Tool::ALL {
        write!(text, " {} s |", tool.title()).expect("text grows");
    }
    text.push_str(" goal |\n|---|---|---|---|");
    text.push_str(&"---|".repeat(Tool::ALL.len() + 1));
    for row in rows {
        write!(text, "\n| {} |", row.title()).expect("text grows");
        for tool in Tool::ALL {
            let cell = match (row.cost(tool), row.ratio(tool)) {
                (Some(cost), _) if tool == Tool::Holdfast => format!("{:.2}", cost.wall),
                (Some(cost), Some(ratio)) => format!("{:.2} ({ratio:.2})", cost.wall),
                _ => String::new(),
            };
            write!(text, " {cell} |").expect("text grows");
        }
        write!(text, " {} |", row.goals()).expect("text grows");
    }
    text
}

pub fn costs(rows: &[Row]) -> String {
    let mut text = "| what | round trip | to | run | tool | CPU s | CPU s at the other end | peak MiB | added MB |\n\
                    |---|---|---|---|---|---|---|---|---|"
        .to_owned();
    for row in rows {
        for (tool, cost) in &row.costs {
            let Cost { cpu, far_cpu, peak_mib, added_mb, .. } = cost;
            let (title, tool) = (row.title(), tool.title());
            write!(text, "\n| {title} | {tool} | {cpu:.2} | {far_cpu:.2} | {peak_mib:.0} | {added_mb:.2} |")
                .expect("text grows");
        }
    }
    text
}

/// Bars below each other, one for each tool: shorter is better. A bar that is many times as long as that of Holdfast is
/// cut off, so that the others can be compared.
pub fn chart(rows: &[Row]) -> String {
    const BAR: usize = 12;
    const TOP: usize = 54;
    const LEFT: usize = 300;
    const WIDTH: f64 = 360.0;
    const CUT_OFF_AT: f64 = 6.0;
    let is_comparable = |row: &Row, tool: Tool| row.ratio(tool).is_some_and(|ratio| ratio <= CUT_OFF_AT);
    let shown = rows.iter().flat_map(|row| row.costs.iter().filter(|(tool, _)| is_comparable(row, *tool)));
    let longest = shown.map(|(_, cost)| cost.wall).fold(0.1, f64::max);
    let mut bars = String::new();
    let mut y = TOP;
    for row in rows {
        writeln!(bars, "<text x=\"10\" y=\"{}\">{}, {}</text>", y + 10, row.what, row.scenario).expect("text grows");
        writeln!(bars, "<text x=\"10\" y=\"{}\">{} ms, {}</text>", y + 25, row.rtt, row.to).expect("text grows");
        for (number, (tool, cost)) in row.costs.iter().enumerate() {
            let width = (cost.wall / longest * WIDTH).clamp(1.0, WIDTH);
            let cut_off = if cost.wall > longest { " →" } else { "" };
            let top = y + number * BAR;
            writeln!(
                bars,
                "<rect fill=\"{}\" x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" height=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{}\" font-size=\"10\">{:.2}{cut_off}</text>",
                colour(*tool),
                BAR - 2,
                LEFT as f64 + width + 5.0,
                top + BAR - 3,
                cost.wall
            )
            .expect("text grows");
        }
        y += row.costs.len().max(3) * BAR + 10;
    }
    let mut legend = String::new();
    for (number, tool) in Tool::ALL.into_iter().enumerate() {
        let (x, title, colour) = (10 + number * 145, tool.title(), colour(tool));
        writeln!(
            legend,
            "<rect fill=\"{colour}\" x=\"{x}\" y=\"30\" width=\"12\" height=\"10\"/><text x=\"{}\" y=\"40\">{title}</text>",
            x + 18
        )
        .expect("text grows");
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 740 {y}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <style>text {{ fill: #334 }} @media (prefers-color-scheme: dark) {{ text {{ fill: #dde }} }}</style>\n\
         <text x=\"10\" y=\"20\" font-size=\"14\">Seconds to back up; shorter is better</text>\n{legend}{bars}</svg>\n"
    )
}

fn colour(tool: Tool) -> &'static str {
    match tool {
        Tool::Holdfast => "#2a7",
        Tool::Restic => "#99a",
        Tool::ResticOverSshfs => "#bbc",
        Tool::Borg => "#c96",
        Tool::Rsync => "#69c",
    }
}
