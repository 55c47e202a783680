//! YAML, with errors in plain words.

use serde_json::Value;
use serde_saphyr::Error;

/// Parses one document. An error names the line.
pub(crate) fn parse(text: &str) -> Result<Value, String> {
    // Only `true` and `false` are booleans: a label may be `no`.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| explain(&error, text))
}

fn explain(error: &Error, text: &str) -> String {
    let number = error.location().map_or(0, |location| location.line() as usize);
    let line = text.lines().nth(number.saturating_sub(1)).unwrap_or_default();
    let what = match error.without_snippet() {
        Error::MultipleDocuments { .. } => "a second document begins here; there must be only one".to_owned(),
        Error::DuplicateMappingKey { key: Some(key), .. } => format!("{key} is given twice"),
        Error::UnknownAnchor { .. } => "this refers to an anchor that does not exist".to_owned(),
        _ => not_valid(line),
    };
    if number == 0 { what } else { format!("line {number}: {what}") }
}

fn not_valid(line: &str) -> String {
    let indentation = &line[..line.len() - line.trim_start().len()];
    if indentation.contains('\t') {
        return "this line is indented with a tab; use spaces".to_owned();
    }
    let shown = line.trim();
    if shown.is_empty() {
        return "this is not valid YAML: something before it is not closed".to_owned();
    }
    format!("this is not valid YAML: {shown:?}; check the indentation, and whether quotes or brackets are not closed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_line_and_what_is_wrong_with_it() {
        let cases = [
            ("a: 1\na: 2\n", "line 2: a is given twice"),
            ("a:\n\t- b\n", "line 2: this line is indented with a tab; use spaces"),
            ("a: b: c\n", "line 1: this is not valid YAML: \"a: b: c\""),
            ("a: *b\n", "line 1: this refers to an anchor that does not exist"),
            ("a: 1\n---\nb: 2\n", "there must be only one"),
        ];
        for (text, expected) in cases {
            let told = parse(text).unwrap_err();
            assert!(told.contains(expected), "{text:?}: {told}");
        }
        assert!(parse("a: [b\n").unwrap_err().starts_with("line "), "{:?}", parse("a: [b\n"));
        assert_eq!(parse("a: no").unwrap()["a"], "no");
    }
}
