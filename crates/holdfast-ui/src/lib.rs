//! The web interface. Pages are rendered on the server and consist of plain links and forms that work without
//! JavaScript; one small script adds live updates and dialogs.

mod assets;
mod chart;
mod cookies;
mod fields;
mod form;
mod frame;
mod human;
mod live;
mod page;
mod pages;
mod problem;
mod router;
mod session;
mod state;
mod translator;
mod view;

pub use router::router;
pub use state::Ui;

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::frame::{Frame, Section};
    use crate::pages::{
        account, administration, audit, backups, destinations, identity, notices, overview, person, probe, restore,
        runs, search, security, servers, sign_in, streams, tags, tasks,
    };
    use crate::translator::Translator;

    /// Renders every page in every language with a hostile text in every place that a user can fill, and checks that
    /// the result contains only our own markup.
    #[test]
    fn every_template_renders_and_user_input_is_escaped() {
        let hostile = "<img src=x onerror=alert(1)>\"'</script>";
        for (code, _) in Translator::all() {
            let frame = Frame {
                t: Translator::of(code),
                csrf: "token".into(),
                place: Section::Tasks,
                name: hostile.into(),
                is_signed_in: true,
                is_admin: true,
                running: 2,
                undelivered: 1,
                sign: "1".into(),
                said: Some("Saved.".into()),
                ..Frame::default()
            };
            let all = [
                account::samples,
                administration::samples,
                person::samples,
                audit::samples,
                backups::samples,
                destinations::samples,
                identity::samples,
                notices::samples,
                overview::samples,
                probe::samples,
                restore::samples,
                runs::samples,
                search::samples,
                security::samples,
                servers::samples,
                sign_in::samples,
                streams::samples,
                tags::samples,
                tasks::samples,
                view::samples,
            ];
            for samples in all {
                for html in samples(&frame, hostile) {
                    assert!(!html.contains("<img"), "{html}");
                    assert!(!html.contains(" style=") && !html.contains("onclick"), "{html}");
                    assert_eq!(html.matches("<script").count(), 1, "only our own: {html}");
                    assert_eq!(html.matches("<main").count(), 1);
                    assert_eq!(html.matches("<h1").count(), 1, "{html}");
                }
            }
        }
        // Every template is used by a page or included in another template.
        let used: BTreeSet<String> = sources().iter().flat_map(|text| paths(text)).collect();
        for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/templates")).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(used.contains(&name), "{name} is not rendered by any test");
        }
    }

    fn sources() -> Vec<String> {
        let mut texts = Vec::new();
        let mut folders = vec![std::path::PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))];
        folders.push(concat!(env!("CARGO_MANIFEST_DIR"), "/templates").into());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else {
                    texts.push(std::fs::read_to_string(path).unwrap());
                }
            }
        }
        texts
    }

    fn paths(text: &str) -> Vec<String> {
        let marks = ["path = \"", "include \"", "extends \""];
        let parts = marks.iter().flat_map(|mark| text.split(mark).skip(1));
        parts.filter_map(|part| part.split('"').next()).map(str::to_owned).collect()
    }
}
