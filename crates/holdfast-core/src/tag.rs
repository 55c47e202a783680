//! Tags: labels by which users organise their tasks.

use crate::changes::Changes;
use crate::fields::FieldSpec;
use crate::input::{Errors, Input};
use crate::refusal::Rule;
use crate::{limits, rules};

const LABEL: FieldSpec = FieldSpec::line("label", limits::TEXT_CHARS).min_chars(1).required().shown_at("/label");
const DESCRIPTION: FieldSpec = FieldSpec::paragraph("description", limits::DESCRIPTION_CHARS).shown_at("/description");
const COLOUR: FieldSpec =
    FieldSpec::line("colour", 7).pattern("^#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$").shown_at("/colour");

/// Every field of a tag.
pub fn fields() -> impl Iterator<Item = &'static FieldSpec> {
    const FIELDS: &[FieldSpec] = &[LABEL, DESCRIPTION, COLOUR];
    FIELDS.iter()
}

/// A complete, checked tag: fields that an update omits come from the current tag.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagDraft {
    pub label: String,
    pub description: Option<String>,
    pub colour: Option<String>,
}

impl TagDraft {
    /// What it changes, for the audit log.
    pub fn changes(&self, current: &TagDraft) -> Changes {
        Changes::between(&current.write(), &self.write())
    }

    fn write(&self) -> Input {
        Input::default()
            .with(LABEL.name, self.label.as_str())
            .with(DESCRIPTION.name, self.description.clone())
            .with(COLOUR.name, self.colour.clone())
    }

    pub fn check(input: &Input, current: Option<&TagDraft>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label = LABEL.required_label(e, input, current.map(|was| &*was.label));
        let description = DESCRIPTION.optional_paragraph(e, input, current.and_then(|was| was.description.clone()));
        let was = current.and_then(|was| was.colour.clone());
        let colour = rules::optional_text(e, COLOUR.name, &COLOUR.text(input), was, colour);
        match label {
            Some(label) if errors.is_empty() => Ok(Self { label, description, colour }),
            _ => Err(errors),
        }
    }
}

/// `#rgb` or `#rrggbb`.
pub fn is_colour(text: &str) -> bool {
    let digits = text.strip_prefix('#').unwrap_or_default();
    matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn colour(errors: &mut Errors, text: &str) -> Option<String> {
    if is_colour(text) {
        return Some(text.to_owned());
    }
    errors.add(COLOUR.name, Rule::Format);
    None
}

#[cfg(test)]
mod tests {
    use crate::input::Value;

    use super::*;

    #[test]
    fn an_update_keeps_what_it_does_not_mention_and_null_clears() {
        let tag = TagDraft { label: "old".into(), description: Some("text".into()), colour: Some("#fff".into()) };
        let input = Input::default().with("label", "new").with("colour", Value::Null);
        let updated = TagDraft::check(&input, Some(&tag)).unwrap();
        assert_eq!(updated, TagDraft { label: "new".into(), description: Some("text".into()), colour: None });
    }

    #[test]
    fn every_error_is_reported_at_once() {
        let input = Input::default().with("description", "x".repeat(1001)).with("colour", "red");
        let errors = TagDraft::check(&input, None).unwrap_err();
        assert!(errors.has("label") && errors.has("description") && errors.has("colour"));
    }
}
