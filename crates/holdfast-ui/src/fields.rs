//! Form fields: each has its label, its hint, its value, and its errors.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use askama::Template;
use askama::filters::HtmlSafe;
use holdfast_core::fields::{DefaultValue, FieldKind, FieldSpec};
use holdfast_core::input::{Errors, Input, Value};

use crate::form::Form;
use crate::human::Markup;
use crate::translator::Translator;

/// The values of a form's fields, either from a stored row or as submitted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Values(BTreeMap<String, Vec<String>>);

impl Values {
    pub(crate) fn set(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.insert(name.to_owned(), vec![value.into()]);
        self
    }

    pub(crate) fn set_all(mut self, name: &str, values: impl IntoIterator<Item = String>) -> Self {
        self.0.insert(name.to_owned(), values.into_iter().collect());
        self
    }

    /// The default of each of these fields that has one.
    pub(crate) fn defaults(fields: impl Iterator<Item = &'static FieldSpec>) -> Self {
        fields.fold(Self::default(), |values, field| match field.default {
            Some(DefaultValue::Switch(is_on)) => values.switch(field.name, is_on),
            Some(DefaultValue::Integer(number)) => values.set(field.name, number.to_string()),
            Some(DefaultValue::Text(text)) => values.set(field.name, text),
            None => values,
        })
    }

    pub(crate) fn switch(self, name: &str, on: bool) -> Self {
        if on { self.set(name, "on") } else { self }
    }

    pub(crate) fn of(form: &Form) -> Self {
        let mut values = Self::default();
        for (name, value) in form.fields() {
            values.0.entry(name.to_owned()).or_default().push(value.to_owned());
        }
        values
    }

    /// The stored values of a resource, in the form's representation.
    pub(crate) fn of_input(input: &Input) -> Self {
        let text = |value: &Value| match value {
            Value::Text(text) => text.clone(),
            Value::Integer(number) => number.to_string(),
            Value::Bool(true) => "on".to_owned(),
            Value::Bool(false) | Value::Null | Value::List(_) | Value::Object(_) | Value::Other => String::new(),
        };
        input.iter().fold(Self::default(), |values, (name, value)| match value {
            Value::List(items) => values.set(name, items.iter().map(text).collect::<Vec<_>>().join("\n")),
            value => values.set(name, text(value)),
        })
    }

    pub(crate) fn text(&self, name: &str) -> &str {
        self.0.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }

    pub(crate) fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.0.get(name).into_iter().flatten().map(String::as_str)
    }

    pub(crate) fn has(&self, name: &str, value: &str) -> bool {
        self.0.get(name).is_some_and(|values| values.iter().any(|own| own == value))
    }
}

/// The hidden field that lists secrets typed before the form was left. Their values are not carried along.
pub(crate) const AGAIN: &str = "again";

/// One option of a select or of a group of checkboxes.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub value: String,
    pub label: String,
    pub is_chosen: bool,
}

#[derive(Debug, Clone)]
enum ControlKind {
    /// An `<input>` with this `type`.
    Line(&'static str),
    Area,
    Select(Vec<Choice>),
    Checks(Vec<Choice>),
    Switch,
}

/// A button next to a field, whose result JavaScript opens as a dialog.
#[derive(Debug, Clone)]
pub(crate) struct Aside {
    pub label: String,
    /// Submits the form with this value for `do`.
    pub action: &'static str,
}

#[derive(Template)]
#[template(path = "field.html")]
struct FieldPart<'a> {
    field: &'a Control,
    is_area: bool,
    is_switch: bool,
    kind: &'a str,
    select: Option<&'a [Choice]>,
    checks: Option<&'a [Choice]>,
    described: String,
}

#[derive(Debug, Clone)]
pub(crate) struct Control {
    name: Cow<'static, str>,
    label: String,
    hint: Option<String>,
    errors: Vec<String>,
    value: String,
    kind: ControlKind,
    is_required: bool,
    has_focus: bool,
    limit: Option<usize>,
    range: Option<(i64, i64)>,
    placeholder: Option<String>,
    autocomplete: &'static str,
    suggestions: Vec<String>,
    aside: Option<Aside>,
    when: Option<String>,
}

/// Builds the fields of one form.
pub(crate) struct Fields<'a> {
    pub t: Translator,
    pub values: &'a Values,
    pub errors: &'a Errors,
}

impl Fields<'_> {
    fn input(&self, name: &'static str, label: String, kind: ControlKind) -> Control {
        let own = self.errors.iter().filter(|(field, _)| *field == name).flat_map(|(_, rules)| rules);
        Control {
            name: Cow::Borrowed(name),
            label,
            hint: None,
            errors: own.map(|rule| self.t.rule(rule)).collect(),
            value: self.values.text(name).to_owned(),
            kind,
            is_required: false,
            has_focus: false,
            limit: None,
            range: None,
            placeholder: None,
            autocomplete: "off",
            suggestions: Vec::new(),
            aside: None,
            when: None,
        }
    }

    /// A field from a field list. Its label is the message `field-<name>`, with optional `-hint` and `-example`. A
    /// secret that is set has the hint `-stays`, because it is kept unless a new one is typed.
    pub(crate) fn listed(&self, field: &'static FieldSpec, is_set: bool) -> Control {
        let (t, name, message) = (self.t, field.name, message_of(field));
        let label = t.say(&message);
        let control = match field.kind {
            FieldKind::Line { .. } | FieldKind::Id | FieldKind::Choice(_) => self.line(name, label),
            FieldKind::Paragraph { .. } | FieldKind::Lines { .. } | FieldKind::Ids { .. } => self.area(name, label),
            FieldKind::Switch => self.switch(name, label),
            FieldKind::Integer { min, max } => self.of_type("number", name, label).range(min, max),
            FieldKind::Secret { .. } => self.password(name, label, "off"),
        };
        let control = match field.kind {
            FieldKind::Line { max_chars, .. } | FieldKind::Secret { max_chars, .. } => control.limit(max_chars),
            FieldKind::Paragraph { .. }
            | FieldKind::Lines { .. }
            | FieldKind::Choice(_)
            | FieldKind::Switch
            | FieldKind::Integer { .. }
            | FieldKind::Id
            | FieldKind::Ids { .. } => control,
        };
        let stays = (is_set && field.is_secret()).then(|| t.find(&format!("{message}-stays")));
        let hint = stays.unwrap_or_else(|| t.find(&format!("{message}-hint")));
        let control = hint.into_iter().fold(control, Control::hint);
        let control = t
            .find(&format!("{message}-example"))
            .into_iter()
            .fold(control, |control, example| Control { placeholder: Some(example), ..control });
        control.shown_with(field)
    }

    /// The switch that removes an optional secret which is set; `None` for every other field. Its label is the message
    /// `field-<name>-remove`.
    pub(crate) fn removal(&self, field: &'static FieldSpec, is_set: bool) -> Option<Control> {
        if !is_set || !field.is_secret() || !field.is_nullable {
            return None;
        }
        let name = format!("remove_{}", field.name);
        let switch = self.switch(field.name, self.t.say(&format!("{}-remove", message_of(field))));
        let value = self.values.text(&name).to_owned();
        let switch = Control { name: Cow::Owned(name), value, errors: Vec::new(), ..switch };
        Some(switch.shown_with(field))
    }

    pub(crate) fn line(&self, name: &'static str, label: String) -> Control {
        self.input(name, label, ControlKind::Line("text"))
    }

    pub(crate) fn of_type(&self, kind: &'static str, name: &'static str, label: String) -> Control {
        self.input(name, label, ControlKind::Line(kind))
    }

    /// A password field. Its value is never sent back to the browser.
    pub(crate) fn password(&self, name: &'static str, label: String, autocomplete: &'static str) -> Control {
        let mut input =
            Control { value: String::new(), autocomplete, ..self.input(name, label, ControlKind::Line("password")) };
        // Otherwise a secret that was typed, but is not sent back, would be lost silently.
        let was_typed = !self.values.text(name).is_empty() || self.values.has(AGAIN, name);
        if was_typed && autocomplete != "current-password" && input.errors.is_empty() {
            input.errors.push(self.t.say("form-secret-again"));
        }
        input
    }

    pub(crate) fn area(&self, name: &'static str, label: String) -> Control {
        self.input(name, label, ControlKind::Area)
    }

    pub(crate) fn switch(&self, name: &'static str, label: String) -> Control {
        self.input(name, label, ControlKind::Switch)
    }

    fn choices(&self, name: &str, options: impl IntoIterator<Item = (String, String)>) -> Vec<Choice> {
        let choice =
            |(value, label): (String, String)| Choice { is_chosen: self.values.has(name, &value), value, label };
        options.into_iter().map(choice).collect()
    }

    pub(crate) fn select(
        &self,
        name: &'static str,
        label: String,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Control {
        self.input(name, label, ControlKind::Select(self.choices(name, options)))
    }

    pub(crate) fn checks(
        &self,
        name: &'static str,
        label: String,
        options: impl IntoIterator<Item = (String, String)>,
    ) -> Control {
        self.input(name, label, ControlKind::Checks(self.choices(name, options)))
    }
}

/// The message with the label of a listed field. Names of messages have no dots.
pub(crate) fn message_of(field: &FieldSpec) -> String {
    format!("field-{}", field.name.replace('.', "-"))
}

impl Control {
    pub(crate) fn required(self) -> Self {
        Self { is_required: true, ..self }
    }

    pub(crate) fn focus(self) -> Self {
        Self { has_focus: true, ..self }
    }

    pub(crate) fn hint(self, hint: String) -> Self {
        Self { hint: Some(hint), ..self }
    }

    pub(crate) fn limit(self, chars: usize) -> Self {
        Self { limit: Some(chars), ..self }
    }

    pub(crate) fn range(self, least: i64, most: i64) -> Self {
        Self { range: Some((least, most)), ..self }
    }

    pub(crate) fn placeholder(self, text: &str) -> Self {
        Self { placeholder: Some(text.to_owned()), ..self }
    }

    pub(crate) fn autocomplete(self, autocomplete: &'static str) -> Self {
        Self { autocomplete, ..self }
    }

    pub(crate) fn suggest(self, suggestions: Vec<String>) -> Self {
        Self { suggestions, ..self }
    }

    /// Shown only when the field applies.
    fn shown_with(self, field: &FieldSpec) -> Self {
        match field.only_if {
            Some((other, values)) => self.when(format!("{other}={}", values.join(","))),
            None => self,
        }
    }

    /// Shown only while another field has one of these values, for example `type=a,b`.
    pub(crate) fn when(self, when: impl Into<String>) -> Self {
        Self { when: Some(when.into()), ..self }
    }

    pub(crate) fn aside(self, label: String, action: &'static str) -> Self {
        Self { aside: Some(Aside { label, action }), ..self }
    }
}

impl fmt::Display for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut described = Vec::new();
        if self.hint.is_some() {
            described.push(format!("{}-hint", self.name));
        }
        if !self.errors.is_empty() {
            described.push(format!("{}-errors", self.name));
        }
        let part = FieldPart {
            field: self,
            is_area: matches!(self.kind, ControlKind::Area),
            is_switch: matches!(self.kind, ControlKind::Switch),
            kind: if let ControlKind::Line(kind) = self.kind { kind } else { "text" },
            select: if let ControlKind::Select(choices) = &self.kind { Some(choices) } else { None },
            checks: if let ControlKind::Checks(choices) = &self.kind { Some(choices) } else { None },
            described: described.join(" "),
        };
        part.render_into(f).map_err(|_| fmt::Error)
    }
}

impl HtmlSafe for Control {}

/// A group of related fields.
#[derive(Debug, Clone, Default)]
pub(crate) struct Group {
    pub title: String,
    /// Shown only while a field has one of these values, for example `type=s3,custom_s3`.
    pub when: Option<String>,
    /// Collapsed by default. `is_open` expands it, for example because one of its fields has an error.
    pub is_folded: bool,
    pub is_open: bool,
    pub fields: Vec<Control>,
    /// A preview that the service computes from the fields while the user types.
    pub preview: Option<Preview>,
}

#[derive(Debug, Clone)]
pub(crate) struct Preview {
    pub id: &'static str,
    /// Where the preview is requested, with the values of these fields.
    pub address: &'static str,
    pub fields: String,
    pub content: Markup,
    /// The label of the button for browsers without JavaScript.
    pub button: String,
}

impl Group {
    pub(crate) fn new(title: String, fields: Vec<Control>) -> Self {
        Self { title, fields, ..Self::default() }
    }

    pub(crate) fn when(self, when: impl Into<String>) -> Self {
        Self { when: Some(when.into()), ..self }
    }

    pub(crate) fn folded(self) -> Self {
        let is_open = self.fields.iter().any(|field| !field.errors.is_empty());
        Self { is_folded: true, is_open, ..self }
    }

    pub(crate) fn preview(self, preview: Preview) -> Self {
        Self { preview: Some(preview), ..self }
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::refusal::Rule;

    use super::*;

    #[test]
    fn a_field_shows_what_was_typed_as_text_and_its_errors_beside_it() {
        let values = Values::default().set("label", "\"><script>alert(1)</script>");
        let errors = Errors::one("label", Rule::Required);
        let fields = Fields { t: Translator::default(), values: &values, errors: &errors };
        let html = fields.line("label", "<b>Label</b>".into()).hint("a hint".into()).required().to_string();
        assert!(!html.contains("<script") && !html.contains("<b>"), "{html}");
        assert!(html.contains("aria-invalid=\"true\"") && html.contains("This field is required."), "{html}");
        assert!(html.contains("aria-describedby=\"label-hint label-errors\""), "{html}");
        let secret = fields.password("label", "Password".into(), "new-password").to_string();
        assert!(!secret.contains("script"), "{secret}");
    }
}
