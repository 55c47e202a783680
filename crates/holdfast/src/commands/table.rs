//! Human-readable tables, with columns as wide as their longest cell.

use std::fmt;

use holdfast_core::characters::escaped;
use serde_json::Value;

use crate::output::{self, Printer, say};

/// Prints rows as a table, or as the JSON of the API.
pub fn list(printer: Printer, rows: &[Value], columns: &[&str], row: impl Fn(&Value) -> Vec<String>) {
    if printer.is_json {
        say!("{:#}", Value::Array(rows.to_vec()));
        return;
    }
    let mut table = Table::new(columns);
    rows.iter().for_each(|found| table.push(row(found)));
    output::print(format_args!("{table}"));
}

struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    fn new(columns: &[&str]) -> Self {
        Self { rows: vec![columns.iter().map(|name| (*name).to_owned()).collect()] }
    }

    fn push(&mut self, row: Vec<String>) {
        // A line break in a name must not look like another row.
        let cell = |cell: String| escaped(&cell).replace('\n', "\\n").replace('\t', "\\t");
        self.rows.push(row.into_iter().map(cell).collect());
    }
}

impl fmt::Display for Table {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.rows.first().map_or(0, Vec::len);
        let width = |column: usize| {
            self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        for row in &self.rows {
            let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
            writeln!(out, "{}", cells.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

/// A value as text.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => "-".to_owned(),
        Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

pub fn bytes(value: &Value) -> String {
    value.as_i64().map_or_else(|| text(value), holdfast_core::figures::size)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["ID", "LABEL", "SIZE"]);
        table.push(vec!["1".into(), "größer".into(), "1 B".into()]);
        table.push(vec!["100".into(), "x".into(), "-".into()]);
        assert_eq!(table.to_string(), "ID   LABEL   SIZE\n1    größer  1 B\n100  x       -\n");
    }

    #[test]
    fn a_cell_is_one_line_without_hidden_characters() {
        let mut table = Table::new(&["LABEL", "ID"]);
        table.push(vec![text(&json!("a\u{1b}[2J\u{202e}b\n2")), "1".into()]);
        assert_eq!(table.to_string(), "LABEL                 ID\na\\u001b[2J\\u202eb\\n2  1\n");
        assert_eq!((text(&json!(null)), text(&json!(3))), ("-".into(), "3".into()));
    }
}
