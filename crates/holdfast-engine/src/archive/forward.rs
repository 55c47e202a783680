//! Forwards the selected members of a tar stream with headers that we write ourselves: the receiving tar sees only what
//! we understood.

use std::io::{self, Read, Write};

use holdfast_core::failure::FailureCode;

use super::selection::Selection;
use super::tar::{Member, MemberKind, Reader, Writer, for_bsd};
use crate::error::{Result, classify};

/// Reads `reader` to its end and writes the members that `selection` decides on to `out`, with a proper end.
/// `on_member` is called for each of them. For bsdtar, attributes are written in its own format.
pub(crate) fn forward(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&Member),
    (out, is_bsd): (&mut dyn Write, bool),
) -> Result<()> {
    forward_members(reader, selection, on_member, (out, is_bsd))
        .map_err(|error| classify(&error, FailureCode::Corrupt, "This backup is damaged"))
}

/// Makes the same decisions as [`forward`], but writes nothing.
pub(crate) fn read_through(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&Member),
) -> io::Result<()> {
    let mut reader = Reader::new(reader);
    while let Some((member, _)) = reader.next()? {
        if let Some(written) = selection.decide(&member)? {
            on_member(&written);
        }
    }
    Ok(())
}

fn forward_members(
    reader: &mut dyn Read,
    selection: &mut Selection,
    on_member: &mut dyn FnMut(&Member),
    (out, is_bsd): (&mut dyn Write, bool),
) -> io::Result<()> {
    let mut reader = Reader::new(reader);
    let mut writer = Writer::new(out);
    while let Some((member, _)) = reader.next()? {
        if let Some(mut written) = selection.decide(&member)? {
            if is_bsd {
                written.attributes = for_bsd(&written.attributes);
            }
            on_member(&written);
            // Only files have data.
            if written.kind == MemberKind::File {
                writer.append(&written, &mut reader)?;
            } else {
                writer.append(&written, &mut io::empty())?;
            }
        }
    }
    writer.finish().map(drop)
}
