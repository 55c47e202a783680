//! The fields of a resource as flags, generated from its list of fields. Secrets come from files, because every user of
//! the machine can read the arguments of a command.

use clap::{Arg, ArgAction, ArgMatches};
use holdfast_client::kinds::{ResourceKind, shown_name};
use holdfast_client::resource::Given;
use holdfast_core::fields::{FieldKind, FieldSpec};
use serde_json::{Value, json};

use super::arguments::many;
use crate::failure::Failure;

pub fn arguments(kind: &'static ResourceKind, is_new: bool) -> Vec<Arg> {
    let mut arguments: Vec<Arg> = kind.plain().map(|field| plain(kind, field, is_new)).collect();
    for link in kind.links {
        let action = if link.is_many { ArgAction::Append } else { ArgAction::Set };
        let is_required = (kind.fields)().iter().any(|field| field.name == link.id_field && field.is_required);
        let several = if link.is_many { "; can be given several times" } else { "" };
        let none = if is_required { "" } else { "; empty for none" };
        let arg = Arg::new(link.field).long(flag_of(link.field)).value_name("NAME").action(action);
        arguments.push(arg.help(format!("ID or label{several}{none}")).required(is_new && is_required));
    }
    for field in kind.secrets() {
        let what = if field.is_required { field.about } else { "" };
        let help = format!("File with the {}, or - for standard input. {what}", field.name.replace('_', " "));
        let arg = Arg::new(file_id(field)).long(format!("{}-file", flag_of(field.name))).value_name("PATH");
        let arg = arg.help(help.trim_end_matches([' ', '.']).to_owned());
        arguments.push(arg.required(is_new && field.is_required));
        if field.is_nullable && !is_new {
            let removal = format!("Remove the {}", field.name.replace('_', " "));
            let arg = Arg::new(none_id(field)).long(format!("no-{}", flag_of(field.name)));
            arguments.push(arg.action(ArgAction::SetTrue).conflicts_with(file_id(field)).help(removal));
        }
    }
    arguments
}

fn plain(kind: &ResourceKind, field: &'static FieldSpec, is_new: bool) -> Arg {
    let mut arg = Arg::new(field.name).long(flag_of(shown_name(field))).value_name("TEXT").help(help(kind, field));
    for alias in field.aliases.iter().chain([&field.name]).filter(|alias| **alias != shown_name(field)) {
        arg = arg.alias(flag_of(alias));
    }
    arg = match field.kind {
        FieldKind::Switch => arg.value_name("true|false").value_parser(clap::value_parser!(bool)),
        FieldKind::Integer { .. } => arg.value_name("NUMBER").value_parser(clap::value_parser!(i64)),
        FieldKind::Lines { .. } => arg.action(ArgAction::Append),
        FieldKind::Choice(_)
        | FieldKind::Line { .. }
        | FieldKind::Paragraph { .. }
        | FieldKind::Secret { .. }
        | FieldKind::Id
        | FieldKind::Ids { .. } => arg,
    };
    arg.required(is_new && field.is_required)
}

fn help(kind: &ResourceKind, field: &FieldSpec) -> String {
    let about = match field.about {
        "" => {
            let name = shown_name(field).replace(['_', '.'], " ").replace("s3", "S3").replace("sftp", "SFTP");
            format!("The {name} of the {}.", kind.one)
        }
        about => about.replace('\n', " "),
    };
    let more = match field.kind {
        FieldKind::Choice(words) => format!("One of {}.", words.join(", ")),
        FieldKind::Lines { .. } => "Can be given several times; empty for none.".to_owned(),
        FieldKind::Integer { .. }
        | FieldKind::Switch
        | FieldKind::Line { .. }
        | FieldKind::Paragraph { .. }
        | FieldKind::Secret { .. }
        | FieldKind::Id
        | FieldKind::Ids { .. } => String::new(),
    };
    [about.trim(), &more].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ")
}

fn flag_of(name: &str) -> String {
    name.replace(['_', '.'], "-")
}

/// The same as that of the setting with this flag, if there is one: it is given here instead.
fn file_id(field: &FieldSpec) -> String {
    format!("HOLDFAST_{}_FILE", field.name.to_uppercase())
}

fn none_id(field: &FieldSpec) -> String {
    format!("no_{}", field.name)
}

pub fn given(kind: &'static ResourceKind, matches: &ArgMatches) -> Result<Given, Failure> {
    let mut given = Given::default();
    for field in kind.plain() {
        if let Some(value) = value(field, matches) {
            given.fields.insert(field.name.to_owned(), value);
        }
    }
    for link in kind.links.iter().filter(|link| matches.contains_id(link.field)) {
        given.links.push((link.field, many(matches, link.field)));
    }
    let mut is_input_read = false;
    for field in kind.secrets() {
        if field.is_nullable && matches.try_get_one::<bool>(&none_id(field)).is_ok_and(|none| none == Some(&true)) {
            given.fields.insert(field.name.to_owned(), Value::Null);
        }
        let Some(path) = matches.get_one::<String>(&file_id(field)) else { continue };
        if path == "-" && std::mem::replace(&mut is_input_read, true) {
            return Err(Failure::settings("only one secret can come from standard input"));
        }
        given.fields.insert(field.name.to_owned(), json!(read_secret(path)?));
    }
    Ok(given)
}

fn value(field: &FieldSpec, matches: &ArgMatches) -> Option<Value> {
    match field.kind {
        FieldKind::Switch => matches.get_one::<bool>(field.name).map(|is_on| json!(is_on)),
        FieldKind::Integer { .. } => matches.get_one::<i64>(field.name).map(|number| json!(number)),
        FieldKind::Lines { .. } if matches.contains_id(field.name) => {
            Some(many(matches, field.name).into_iter().filter(|line| !line.is_empty()).collect())
        }
        FieldKind::Lines { .. } => None,
        FieldKind::Choice(_)
        | FieldKind::Line { .. }
        | FieldKind::Paragraph { .. }
        | FieldKind::Secret { .. }
        | FieldKind::Id
        | FieldKind::Ids { .. } => {
            let text = matches.get_one::<String>(field.name)?;
            Some(if text.is_empty() && field.is_nullable { Value::Null } else { json!(text) })
        }
    }
}

fn read_secret(path: &str) -> Result<String, Failure> {
    let text = if path == "-" { std::io::read_to_string(std::io::stdin()) } else { std::fs::read_to_string(path) };
    let text = text.map_err(|error| Failure::settings(format!("{path}: {error}")))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}
