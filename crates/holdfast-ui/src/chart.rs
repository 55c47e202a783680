//! Charts as inline SVG, rendered by the service. The style sheet colours them in both themes, and each page also shows
//! the figures as a table.

use std::fmt::Write as _;

use crate::human::{Markup, escaped};

/// One value of a chart, with its label.
pub(crate) struct Point {
    pub value: i64,
    pub label: String,
}

const WIDTH: f64 = 600.0;
const HEIGHT: f64 = 120.0;

/// A line over a filled area, the first value at the left. Empty if there are fewer than two values.
pub(crate) fn line(points: &[Point], title: &str) -> Markup {
    let Some(most) = points.iter().map(|point| point.value).max().filter(|_| points.len() > 1) else {
        return Markup::default();
    };
    let places = places(points.iter().map(|point| point.value), most);
    let course: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let mut svg = open("chart line", title);
    let _ = write!(svg, "<polygon class=\"area\" points=\"0,{HEIGHT} {} {WIDTH},{HEIGHT}\"/>", course.join(" "));
    let _ = write!(svg, "<polyline class=\"course\" points=\"{}\"/>", course.join(" "));
    svg.push_str("</svg>");
    Markup(svg)
}

/// One bar per value.
pub(crate) fn bars(points: &[Point], title: &str) -> Markup {
    let most = points.iter().map(|point| point.value).max().unwrap_or(0).max(1);
    if points.is_empty() {
        return Markup::default();
    }
    let step = WIDTH / points.len() as f64;
    let mut svg = open("chart bars", title);
    for (number, point) in points.iter().enumerate() {
        let height =
            (point.value.max(0) as f64 / most as f64 * (HEIGHT - 4.0)).max(if point.value > 0 { 2.0 } else { 0.0 });
        let (x, y) = (number as f64 * step, HEIGHT - height);
        let _ = write!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{height:.1}\"><title>{}</title></rect>",
            (step - 2.0).max(1.0),
            escaped(&point.label)
        );
    }
    svg.push_str("</svg>");
    Markup(svg)
}

/// A sparkline that fits into a table row. The text next to it says what it shows.
pub(crate) fn spark(values: &[i64]) -> Markup {
    let Some(most) = values.iter().copied().max().filter(|_| values.len() > 1) else { return Markup::default() };
    let places = places(values.iter().copied(), most);
    let course: Vec<String> =
        places.iter().map(|(x, y)| format!("{:.1},{:.1}", x / WIDTH * 96.0 + 2.0, y / HEIGHT * 20.0 + 2.0)).collect();
    Markup(format!(
        "<svg class=\"spark\" viewBox=\"0 0 100 24\" aria-hidden=\"true\"><polyline points=\"{}\"/></svg>",
        course.join(" ")
    ))
}

fn places(values: impl ExactSizeIterator<Item = i64>, most: i64) -> Vec<(f64, f64)> {
    let step = WIDTH / (values.len() as f64 - 1.0);
    let most = most.max(1) as f64;
    values
        .enumerate()
        .map(|(number, value)| (number as f64 * step, HEIGHT - value.max(0) as f64 / most * (HEIGHT - 4.0)))
        .collect()
}

fn open(class: &str, title: &str) -> String {
    format!(
        "<svg class=\"{class}\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" preserveAspectRatio=\"none\" role=\"img\" \
         aria-label=\"{}\">",
        escaped(title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_titles_are_escaped() {
        let points = [1, 0, 5].map(|value| Point { value, label: format!("<b>{value}</b>") });
        for chart in [line(&points, "\"><script>"), bars(&points, "\"><script>"), spark(&[1, 2])] {
            assert!(!chart.0.contains("<script") && !chart.0.contains("<b>") && !chart.0.contains("style="), "{chart}");
            assert!(chart.0.starts_with("<svg") && chart.0.ends_with("</svg>"));
        }
        assert!(spark(&[1]).0.is_empty() && line(&points[..1], "").0.is_empty());
        assert!(spark(&[0, 0]).0.contains("2.0,22.0"), "zeros stay on the baseline: {}", spark(&[0, 0]));
    }
}
