//! Hands the chosen members of a tar stream on, in headers that we write ourselves: the tar at the other end sees what
//! we understood and nothing else.

use std::io::{self, Read, Write};

use holdfast_core::run::FailureCode;

use super::selection::Selection;
use super::tar::{Kind, Reader, Writer};
use crate::error::{Result, classify};

/// Reads `reader` to its end and writes what `selection` decides to `out`, with a proper end. `on_member` hears of each
/// member that is written.
pub(crate) fn forward(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&[u8]),
    out: &mut dyn Write,
) -> Result<()> {
    forward_members(reader, selection, on_member, out)
        .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
}

fn forward_members(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&[u8]),
    out: &mut dyn Write,
) -> io::Result<()> {
    let mut reader = Reader::new(reader);
    let mut writer = Writer::new(out);
    while let Some((member, _)) = reader.next()? {
        if let Some(written) = selection.decide(&member)? {
            on_member(&written.path);
            match written.kind {
                Kind::File => writer.append(&written, &mut reader)?,
                _ => writer.append(&written, &mut io::empty())?,
            }
        }
    }
    writer.finish().map(drop)
}
