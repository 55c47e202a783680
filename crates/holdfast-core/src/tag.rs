//! Tags: labels of the user's own to sort tasks by.

use crate::input::{Errors, Field};
use crate::refusal::Rule;
use crate::{limits, rules};

#[derive(Debug, Default)]
pub struct TagInput {
    pub label: Field<String>,
    pub description: Field<String>,
    pub colour: Field<String>,
}

/// A checked tag, whole: what an update does not mention comes from the tag as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TagDraft {
    pub label: String,
    pub description: Option<String>,
    pub colour: Option<String>,
}

impl TagDraft {
    pub fn check(input: &TagInput, current: Option<&TagDraft>) -> Result<Self, Errors> {
        let mut errors = Errors::default();
        let e = &mut errors;
        let label = rules::required_line(e, "label", &input.label, limits::TEXT_CHARS, current.map(|c| &*c.label));
        let was = current.and_then(|c| c.description.clone());
        let description = rules::optional_text(e, "description", &input.description, was, |e, text| {
            rules::paragraph(e, "description", text, limits::DESCRIPTION_CHARS)
        });
        let was = current.and_then(|c| c.colour.clone());
        let colour = rules::optional_text(e, "colour", &input.colour, was, colour);
        match label {
            Some(label) if errors.is_empty() => Ok(Self { label, description, colour }),
            _ => Err(errors),
        }
    }
}

/// `#rgb` or `#rrggbb`.
fn colour(errors: &mut Errors, text: &str) -> Option<String> {
    let digits = text.strip_prefix('#').unwrap_or_default();
    if matches!(digits.len(), 3 | 6) && digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Some(text.to_owned());
    }
    errors.add("colour", Rule::Format);
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_update_keeps_what_it_does_not_mention_and_null_clears() {
        let tag = TagDraft { label: "old".into(), description: Some("text".into()), colour: Some("#fff".into()) };
        let input = TagInput { label: Field::Value("new".into()), colour: Field::Null, ..TagInput::default() };
        let updated = TagDraft::check(&input, Some(&tag)).unwrap();
        assert_eq!(updated, TagDraft { label: "new".into(), description: Some("text".into()), colour: None });
    }

    #[test]
    fn every_error_is_reported_at_once() {
        let input = TagInput {
            description: Field::Value("x".repeat(1001)),
            colour: Field::Value("red".into()),
            ..TagInput::default()
        };
        let errors = TagDraft::check(&input, None).unwrap_err();
        assert!(errors.has("label") && errors.has("description") && errors.has("colour"));
    }
}
