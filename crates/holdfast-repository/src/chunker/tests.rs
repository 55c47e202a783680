//! Chunks, compared with the algorithm as it is usually written down.

use super::*;

/// The polynomial of restic's own tests.
const POLYNOMIAL: u64 = 0x3D_A335_8B4D_C173;

fn noise(length: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend(state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

fn chunks(tables: &Tables, bytes: &[u8], piece: usize) -> Vec<usize> {
    let (mut chunker, mut lengths) = (Chunker::new(tables), Vec::new());
    for piece in bytes.chunks(piece) {
        let done: Result<(), ()> = chunker.push(piece, |chunk| {
            lengths.push(chunk.len());
            Ok(chunk)
        });
        done.unwrap();
    }
    lengths.extend(chunker.finish().map(|chunk| chunk.len()));
    lengths
}

/// Length by length.
fn simple_chunks(tables: &Tables, bytes: &[u8]) -> Vec<usize> {
    let (mut lengths, mut start) = (Vec::new(), 0);
    while start < bytes.len() {
        let rest = &bytes[start..];
        let is_end =
            |length: &usize| *length == MAX_CHUNK_BYTES || tables.first_cut(&rest[..*length], *length).is_some();
        let end = (MIN_CHUNK_BYTES..=rest.len().min(MAX_CHUNK_BYTES)).find(is_end).unwrap_or(rest.len());
        lengths.push(end);
        start += end;
    }
    lengths
}

#[test]
fn chunks_do_not_depend_on_the_pieces_in_which_a_file_arrives() {
    let tables = Tables::new(Polynomial::new(POLYNOMIAL).unwrap());
    let bytes = noise(24 * 1024 * 1024, 7);
    let expected = simple_chunks(&tables, &bytes);
    assert!(expected.len() > 8, "{expected:?}");
    assert_eq!(expected.iter().sum::<usize>(), bytes.len());
    for piece in [1000, 4096, 65_537, 256 * 1024, 5_000_000, bytes.len()] {
        assert_eq!(chunks(&tables, &bytes, piece), expected, "in pieces of {piece}");
    }
}

#[test]
fn a_file_without_ends_is_cut_at_the_longest_chunk() {
    let tables = Tables::new(Polynomial::new(POLYNOMIAL).unwrap());
    // The fingerprint of zeros is zero, so each chunk is as short as allowed.
    let zeros = vec![0; 2 * 1024 * 1024 + 5];
    assert_eq!(chunks(&tables, &zeros, 100_000), [MIN_CHUNK_BYTES; 4].into_iter().chain([5]).collect::<Vec<_>>());
    let ones = vec![1; 20 * 1024 * 1024];
    let expected = [MAX_CHUNK_BYTES, MAX_CHUNK_BYTES, 4 * 1024 * 1024];
    assert_eq!(chunks(&tables, &ones, 70_000), expected);
    assert_eq!(chunks(&tables, &ones, ones.len()), expected);
}

#[test]
fn files_are_divided_independently_of_each_other() {
    let tables = Tables::new(Polynomial::new(POLYNOMIAL).unwrap());
    let mut chunker = Chunker::new(&tables);
    let bytes = noise(600_000, 3);
    for _ in 0..2 {
        let done: Result<(), ()> = chunker.push(&bytes, |_| panic!("an end in the shortest chunk"));
        done.unwrap();
        assert_eq!(chunker.finish().unwrap(), bytes);
        assert_eq!(chunker.finish(), None);
    }
    assert_eq!(chunks(&tables, &[], 1), Vec::<usize>::new());
}
