//! Replies of an SFTP server.

use holdfast_engine::sftp::packet::{self, MAX_PACKET_BYTES, Packet, Reply};

use super::mutate::damage;
use super::rng::Rng;

pub fn make_sftp(rng: &mut Rng) -> Vec<u8> {
    let mut packet = Vec::new();
    let kind = *rng.pick(&[&2, &101, &102, &103, &104, &104, &105, &201]);
    packet.push(kind);
    put_u32(&mut packet, if rng.one_in(4) { rng.number() } else { 3 });
    match kind {
        2 => (0..2 * rng.below(4)).for_each(|_| put_string(rng, &mut packet)),
        101 => {
            put_u32(&mut packet, rng.extreme());
            (0..rng.below(3)).for_each(|_| put_string(rng, &mut packet));
        }
        104 => {
            let count = rng.below(5);
            put_u32(&mut packet, if rng.one_in(6) { rng.extreme() } else { count as u64 });
            for _ in 0..count {
                put_string(rng, &mut packet);
                put_string(rng, &mut packet);
                put_attributes(rng, &mut packet);
            }
        }
        105 => put_attributes(rng, &mut packet),
        201 => (0..11).for_each(|_| packet.extend(rng.extreme().to_be_bytes())),
        _ => put_string(rng, &mut packet),
    }
    if rng.one_in(3) {
        damage(rng, &mut packet, &[b"\x80\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0"]);
    }
    packet
}

fn put_u32(packet: &mut Vec<u8>, number: u64) {
    packet.extend(&number.to_be_bytes()[4..]);
}

fn put_string(rng: &mut Rng, packet: &mut Vec<u8>) {
    let longest = if rng.one_in(10) { 2000 } else { 12 };
    let text = rng.bytes(longest);
    let length = if rng.one_in(30) { rng.extreme() } else { text.len() as u64 };
    put_u32(packet, length);
    packet.extend(text);
}

fn put_attributes(rng: &mut Rng, packet: &mut Vec<u8>) {
    let mut flags = rng.number() & 15;
    if rng.one_in(5) {
        flags |= 0x8000_0000;
    }
    put_u32(packet, flags);
    for (flag, bytes) in [(1, 8), (2, 8), (4, 4), (8, 8)] {
        if flags & flag != 0 {
            packet.extend(&rng.extreme().to_be_bytes()[8 - bytes..]);
        }
    }
    if flags & 0x8000_0000 != 0 {
        let count = rng.below(3);
        put_u32(packet, if rng.one_in(6) { rng.extreme() } else { count as u64 });
        (0..2 * count).for_each(|_| put_string(rng, packet));
    }
}

/// The decoded values must not be larger than the packet.
pub fn run_sftp(input: &[u8]) -> bool {
    if let Ok(Some(length)) = packet::packet_length(input) {
        assert!((5..=MAX_PACKET_BYTES + 4).contains(&length), "a packet of {length} bytes");
    }
    let Ok(packet) = packet::decode(input) else { return false };
    let held = match &packet {
        Packet::Version { extensions, .. } => extensions.iter().map(|(name, value)| 8 + name.len() + value.len()).sum(),
        Packet::Reply { reply: Reply::Names(names), .. } => names.iter().map(|name| 12 + name.name.len()).sum(),
        Packet::Reply { reply: Reply::Data(data), .. } => data.len(),
        Packet::Reply { reply: Reply::Status { message, .. }, .. } => message.len(),
        Packet::Reply { reply: Reply::Handle(_) | Reply::Attributes(_) | Reply::Space(_), .. } => 0,
    };
    assert!(held <= input.len(), "more was decoded than received");
    assert_eq!(packet::decode(input).as_ref(), Ok(&packet), "decoding depends on more than the packet");
    true
}
