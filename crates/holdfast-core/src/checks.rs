//! Checks of single fields against their specifications: each records what is wrong and returns the value to use.

use crate::fields::{FieldKind, FieldSpec};
use crate::input::{Errors, Field, Input};
use crate::refusal::Rule;
use crate::rules::{self, Checked};
use crate::secret::SecretChange;

impl FieldSpec {
    /// The value under the field's name or, failing that, under one of its aliases.
    fn find<T>(&self, read: impl Fn(&str) -> Field<T>) -> Field<T> {
        self.aliases.iter().fold(read(self.name), |found, alias| found.or(read(alias)))
    }

    pub fn text(&self, input: &Input) -> Field<String> {
        self.find(|name| input.text(name))
    }

    /// A line that is required on create and may be omitted from an update.
    pub fn required_line(&self, errors: &mut Errors, input: &Input, current: Option<&str>) -> Checked<String> {
        rules::required_line(errors, self.name, &self.text(input), self.max_chars(), current)
    }

    /// A label that is required on create and may be omitted from an update.
    pub fn required_label(&self, errors: &mut Errors, input: &Input, current: Option<&str>) -> Checked<String> {
        rules::required_label(errors, self.name, &self.text(input), self.max_chars(), current)
    }

    /// An optional line; `is_good` checks its format.
    pub fn optional_line(
        &self,
        errors: &mut Errors,
        input: &Input,
        current: Option<String>,
        is_good: impl FnOnce(&str) -> bool,
    ) -> Option<String> {
        rules::optional_text(errors, self.name, &self.text(input), current, |errors, text| {
            let line = rules::line(errors, self.name, text, self.max_chars())?;
            if !is_good(&line) {
                errors.add(self.name, Rule::Format);
            }
            Some(line)
        })
    }

    pub fn optional_paragraph(&self, errors: &mut Errors, input: &Input, current: Option<String>) -> Option<String> {
        rules::optional_text(errors, self.name, &self.text(input), current, |errors, text| {
            rules::paragraph(errors, self.name, text, self.max_chars())
        })
    }

    /// A list of lines: kept if an update omits it, emptied by null.
    pub fn line_list(&self, errors: &mut Errors, input: &Input, current: Option<&[String]>) -> Vec<String> {
        let max_items = if let FieldKind::Lines { max_items, .. } = self.kind { max_items } else { 0 };
        match self.find(|name| input.texts(name)) {
            Field::Absent => return current.unwrap_or_default().to_vec(),
            Field::Null => {}
            Field::WrongType => errors.add(self.name, Rule::Texts),
            Field::Value(lines) if lines.len() > max_items => errors.add(self.name, Rule::MaxItems { max: max_items }),
            Field::Value(lines) => {
                let line = |text: &String| rules::line(errors, self.name, text, self.max_chars());
                return lines.iter().filter_map(line).collect();
            }
        }
        Vec::new()
    }

    pub fn checked_integer(&self, errors: &mut Errors, input: &Input, current: i64) -> i64 {
        let bounds = if let FieldKind::Integer { min, max } = self.kind { min..=max } else { i64::MIN..=i64::MAX };
        rules::integer(errors, self.name, &self.find(|name| input.integer(name)), bounds, current)
    }

    /// Whether a stored number is within the field's bounds.
    pub fn is_within(&self, stored: &Input) -> bool {
        match (self.kind, stored.integer(self.name).value()) {
            (FieldKind::Integer { min, max }, Some(number)) => (min..=max).contains(number),
            _ => false,
        }
    }

    pub fn checked_switch(&self, errors: &mut Errors, input: &Input, current: bool) -> bool {
        rules::boolean(errors, self.name, &self.find(|name| input.boolean(name)), current)
    }

    /// One word of a closed list, required on create.
    pub fn required_choice<T: Copy>(
        &self,
        errors: &mut Errors,
        input: &Input,
        current: Option<T>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Checked<T> {
        rules::choice(errors, self.name, &self.text(input), current, parse)
    }

    /// One word of a closed list, or none.
    pub fn optional_choice<T: Copy>(
        &self,
        errors: &mut Errors,
        input: &Input,
        current: Option<T>,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Option<T> {
        match self.text(input) {
            Field::Null => None,
            Field::Absent => current,
            given @ (Field::WrongType | Field::Value(_)) => rules::choice(errors, self.name, &given, None, parse),
        }
    }

    pub fn required_id(&self, errors: &mut Errors, input: &Input, current: Option<i64>) -> Checked<i64> {
        match self.find(|name| input.integer(name)) {
            Field::Value(id) => return Some(id),
            Field::Absent if current.is_some() => return current,
            Field::Absent | Field::Null => errors.add(self.name, Rule::Required),
            Field::WrongType => errors.add(self.name, Rule::Integer),
        }
        None
    }

    /// An optional id: kept if omitted, removed by null.
    pub fn optional_id(&self, errors: &mut Errors, input: &Input, current: Option<i64>) -> Option<i64> {
        match self.find(|name| input.integer(name)) {
            Field::Absent => return current,
            Field::Value(id) => return Some(id),
            Field::Null => {}
            Field::WrongType => errors.add(self.name, Rule::Integer),
        }
        None
    }

    /// Ids to attach. An absent field keeps what is attached, null detaches everything.
    pub fn id_list(&self, errors: &mut Errors, input: &Input) -> Option<Vec<i64>> {
        rules::id_list(errors, self.name, &self.find(|name| input.integers(name)))
    }

    pub fn secret_change(&self, errors: &mut Errors, input: &Input) -> SecretChange {
        rules::secret_change(errors, self.name, &self.text(input))
    }

    /// A required secret: needed on create; later it may be omitted to keep the stored one.
    pub fn required_secret(&self, errors: &mut Errors, input: &Input, has_one: bool) -> SecretChange {
        let given = self.text(input);
        match rules::secret_change(errors, self.name, &given) {
            SecretChange::Keep if !has_one && given.is_absent() => errors.add(self.name, Rule::Required),
            SecretChange::Clear => errors.add(self.name, Rule::Required),
            change => return change,
        }
        SecretChange::Keep
    }

    /// Reports a value of the wrong type in a field that does not apply. Such a field is otherwise ignored.
    pub fn check_kind(&self, errors: &mut Errors, input: &Input) {
        let (is_wrong, rule) = match self.kind {
            FieldKind::Line { .. } | FieldKind::Paragraph { .. } | FieldKind::Secret { .. } | FieldKind::Choice(_) => {
                (self.text(input) == Field::WrongType, Rule::Text)
            }
            FieldKind::Switch => (self.find(|name| input.boolean(name)) == Field::WrongType, Rule::Boolean),
            FieldKind::Integer { .. } | FieldKind::Id => {
                (self.find(|name| input.integer(name)) == Field::WrongType, Rule::Integer)
            }
            FieldKind::Lines { .. } => (self.find(|name| input.texts(name)) == Field::WrongType, Rule::Texts),
            FieldKind::Ids { .. } => (self.find(|name| input.integers(name)) == Field::WrongType, Rule::Integers),
        };
        if is_wrong {
            errors.add(self.name, rule);
        }
    }
}
