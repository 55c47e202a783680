//! Trees: the entries of one folder, as JSON that is byte for byte what restic writes.

use std::fmt;
use std::fmt::Write as _;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::go_text::{quote, unquote, write_json_string};
use crate::id::Id;
use crate::time::GoTime;
use crate::{RepositoryError, Result};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeKind {
    File,
    Folder,
    Symlink,
    BlockDevice,
    CharDevice,
    Fifo,
    Socket,
    /// Something else, which restic lists and does not restore.
    Irregular,
}

impl NodeKind {
    const ALL: [Self; 8] = [
        Self::File,
        Self::Folder,
        Self::Symlink,
        Self::BlockDevice,
        Self::CharDevice,
        Self::Fifo,
        Self::Socket,
        Self::Irregular,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Folder => "dir",
            Self::Symlink => "symlink",
            Self::BlockDevice => "dev",
            Self::CharDevice => "chardev",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
            Self::Irregular => "irregular",
        }
    }

    /// The bits that Go adds to the mode of a file of this kind.
    const fn mode_bits(self) -> u32 {
        match self {
            Self::File => 0,
            Self::Folder => 1 << 31,
            Self::Symlink => 1 << 27,
            Self::BlockDevice => 1 << 26,
            Self::CharDevice => 1 << 26 | 1 << 21,
            Self::Fifo => 1 << 25,
            Self::Socket => 1 << 24,
            Self::Irregular => 1 << 19,
        }
    }
}

/// The bits of a mode that Unix and Go place differently.
const SPECIAL_BITS: [(u32, u32); 3] = [(0o4000, 1 << 23), (0o2000, 1 << 22), (0o1000, 1 << 20)];

/// An extended attribute.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attribute {
    pub name: String,
    #[serde(with = "crate::go_text::base64")]
    pub value: Vec<u8>,
}

/// An entry of a folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub name: Vec<u8>,
    pub kind: NodeKind,
    /// The permissions, with the bits for setuid, setgid and sticky where Unix has them.
    pub mode: u32,
    pub modified: GoTime,
    pub accessed: GoTime,
    pub changed: GoTime,
    pub uid: u32,
    pub gid: u32,
    pub user: Vec<u8>,
    pub group: Vec<u8>,
    /// 0 if it is not known; so are the next three. Only files, links and devices have a number of links.
    pub inode: u64,
    pub device_id: u64,
    pub size: u64,
    pub links: u64,
    pub link_target: Vec<u8>,
    pub attributes: Vec<Attribute>,
    /// The number of a device.
    pub device: u64,
    /// The chunks of a file; `None` for everything else.
    pub content: Option<Vec<Id>>,
    /// The tree of a folder.
    pub subtree: Option<Id>,
}

impl Node {
    /// An entry without any metadata.
    pub fn new(name: &[u8], kind: NodeKind) -> Self {
        Self {
            name: name.to_vec(),
            kind,
            mode: 0,
            modified: GoTime::default(),
            accessed: GoTime::default(),
            changed: GoTime::default(),
            uid: 0,
            gid: 0,
            user: Vec::new(),
            group: Vec::new(),
            inode: 0,
            device_id: 0,
            size: 0,
            links: 0,
            link_target: Vec::new(),
            attributes: Vec::new(),
            device: 0,
            content: (kind == NodeKind::File).then(Vec::new),
            subtree: None,
        }
    }

    /// The JSON of the entry, as it is in a tree.
    pub fn to_json(&self) -> String {
        let mut json = String::new();
        // Writing to a string cannot fail.
        let _always = self.write(&mut json);
        json
    }

    pub fn from_json(json: &[u8]) -> Result<Self> {
        let damaged = |error: String| RepositoryError::damaged(format!("An entry of a folder is damaged: {error}."));
        let stored: StoredNode = serde_json::from_slice(json).map_err(|error| damaged(error.to_string()))?;
        Self::try_from(stored).map_err(damaged)
    }

    fn write(&self, json: &mut String) -> fmt::Result {
        json.push_str("{\"name\":");
        write_json_string(json, quote(&self.name).as_bytes());
        write!(json, ",\"type\":\"{}\"", self.kind.name())?;
        let special = SPECIAL_BITS.iter().filter(|(unix, _)| self.mode & unix != 0);
        let mode = special.fold(self.mode & 0o777 | self.kind.mode_bits(), |mode, (_, go)| mode | go);
        write_number(json, "mode", mode.into())?;
        let (modified, accessed, changed) = (self.modified.text(), self.accessed.text(), self.changed.text());
        write!(json, ",\"mtime\":\"{modified}\",\"atime\":\"{accessed}\",\"ctime\":\"{changed}\"")?;
        write!(json, ",\"uid\":{},\"gid\":{}", self.uid, self.gid)?;
        write_text(json, "user", &self.user);
        write_text(json, "group", &self.group);
        write_number(json, "inode", self.inode)?;
        write_number(json, "device_id", self.device_id)?;
        write_number(json, "size", self.size)?;
        write_number(json, "links", self.links)?;
        write_text(json, "linktarget", &self.link_target);
        if std::str::from_utf8(&self.link_target).is_err() {
            write!(json, ",\"linktarget_raw\":\"{}\"", BASE64_STANDARD.encode(&self.link_target))?;
        }
        if !self.attributes.is_empty() {
            json.push_str(",\"extended_attributes\":[");
            for (index, Attribute { name, value }) in self.attributes.iter().enumerate() {
                json.push_str(if index == 0 { "{\"name\":" } else { ",{\"name\":" });
                write_json_string(json, name.as_bytes());
                write!(json, ",\"value\":\"{}\"}}", BASE64_STANDARD.encode(value))?;
            }
            json.push(']');
        }
        write_number(json, "device", self.device)?;
        json.push_str(",\"content\":");
        match &self.content {
            None => json.push_str("null"),
            Some(chunks) => {
                json.push('[');
                for (index, chunk) in chunks.iter().enumerate() {
                    write!(json, "{}\"{chunk}\"", if index == 0 { "" } else { "," })?;
                }
                json.push(']');
            }
        }
        if let Some(subtree) = &self.subtree {
            write!(json, ",\"subtree\":\"{subtree}\"")?;
        }
        json.push('}');
        Ok(())
    }
}

/// A number that is left out if it is zero.
fn write_number(json: &mut String, name: &str, number: u64) -> fmt::Result {
    if number == 0 { Ok(()) } else { write!(json, ",\"{name}\":{number}") }
}

/// Text that is left out if it is empty.
fn write_text(json: &mut String, name: &str, text: &[u8]) {
    if !text.is_empty() {
        json.push_str(",\"");
        json.push_str(name);
        json.push_str("\":");
        write_json_string(json, text);
    }
}

/// Writes the tree of one folder.
#[derive(Debug)]
pub struct Tree {
    json: String,
    last: Option<Vec<u8>>,
}

impl Default for Tree {
    fn default() -> Self {
        Self { json: "{\"nodes\":[".to_owned(), last: None }
    }
}

impl Tree {
    /// Adds an entry. They must come in the order of their names, as bytes.
    pub fn add(&mut self, node: &Node) -> Result<()> {
        self.add_json(&node.name, &node.to_json(), None)
    }

    /// Adds an entry that was written by [`Node::to_json`]; a folder without its tree gets `subtree`.
    pub fn add_json(&mut self, name: &[u8], json: &str, subtree: Option<&Id>) -> Result<()> {
        match &self.last {
            Some(last) if last.as_slice() >= name => {
                return Err(RepositoryError::damaged("The entries of a folder came out of order."));
            }
            Some(_) => self.json.push(','),
            None => {}
        }
        self.json.push_str(json);
        if let Some(subtree) = subtree {
            // It is the last member of the object.
            self.json.pop();
            self.json.push_str(",\"subtree\":\"");
            self.json.push_str(&subtree.to_string());
            self.json.push_str("\"}");
        }
        self.last = Some(name.to_vec());
        Ok(())
    }

    /// The bytes of the blob.
    pub fn finish(mut self) -> Vec<u8> {
        self.json.push_str("]}\n");
        self.json.into_bytes()
    }

    /// Passes each entry of a tree to `visitor` until that returns `false`. A tree may have hundreds of megabytes, so
    /// its entries are never held together.
    pub fn visit(json: &[u8], visitor: &mut dyn FnMut(Node) -> bool) -> Result<()> {
        let mut has_stopped = false;
        let mut wrapped = |node: Node| {
            has_stopped = !visitor(node);
            !has_stopped
        };
        let mut deserializer = serde_json::Deserializer::from_slice(json);
        let read = deserializer.deserialize_map(TreeVisitor(&mut wrapped)).and_then(|()| deserializer.end());
        match read {
            Err(_) if has_stopped => Ok(()),
            Err(error) => Err(RepositoryError::damaged(format!("A folder of this repository is damaged: {error}."))),
            Ok(()) => Ok(()),
        }
    }

    pub fn nodes(json: &[u8]) -> Result<Vec<Node>> {
        let mut nodes = Vec::new();
        Self::visit(json, &mut |node| {
            nodes.push(node);
            true
        })?;
        Ok(nodes)
    }
}

struct TreeVisitor<'a>(&'a mut dyn FnMut(Node) -> bool);

impl<'de> Visitor<'de> for TreeVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a tree")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            if key == "nodes" {
                map.next_value_seed(NodesVisitor(self.0))?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }
}

struct NodesVisitor<'a>(&'a mut dyn FnMut(Node) -> bool);

impl<'de> DeserializeSeed<'de> for NodesVisitor<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for NodesVisitor<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("the entries of a folder")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut nodes: A) -> Result<(), A::Error> {
        while let Some(stored) = nodes.next_element::<StoredNode>()? {
            let node = Node::try_from(stored).map_err(A::Error::custom)?;
            if !(self.0)(node) {
                return Err(A::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}

/// A node as it is stored.
#[derive(Deserialize)]
struct StoredNode<'a> {
    #[serde(borrow)]
    name: std::borrow::Cow<'a, str>,
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    mode: u32,
    #[serde(default)]
    mtime: GoTime,
    #[serde(default)]
    atime: GoTime,
    #[serde(default)]
    ctime: GoTime,
    #[serde(default)]
    uid: u32,
    #[serde(default)]
    gid: u32,
    #[serde(default)]
    user: String,
    #[serde(default)]
    group: String,
    #[serde(default)]
    inode: u64,
    #[serde(default)]
    device_id: u64,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    links: u64,
    #[serde(default)]
    linktarget: String,
    #[serde(default)]
    linktarget_raw: Option<String>,
    #[serde(default)]
    extended_attributes: Option<Vec<Attribute>>,
    #[serde(default)]
    device: u64,
    #[serde(default)]
    content: Option<Vec<Id>>,
    #[serde(default)]
    subtree: Option<Id>,
}

impl TryFrom<StoredNode<'_>> for Node {
    type Error = String;

    fn try_from(stored: StoredNode<'_>) -> Result<Self, String> {
        let kind = NodeKind::ALL.into_iter().find(|kind| kind.name() == stored.kind);
        // A kind that a later version of restic has added.
        let kind = kind.unwrap_or(NodeKind::Irregular);
        let name = unquote(&stored.name).ok_or("a name is not quoted correctly")?;
        if name.is_empty() || name == b"." || name == b".." || name.contains(&b'/') || name.contains(&0) {
            return Err(format!("{:?} is no name of a file", stored.name));
        }
        let link_target = match &stored.linktarget_raw {
            Some(raw) => BASE64_STANDARD.decode(raw).map_err(|error| error.to_string())?,
            None => stored.linktarget.into_bytes(),
        };
        let special = SPECIAL_BITS.iter().filter(|(_, go)| stored.mode & go != 0);
        Ok(Self {
            name,
            kind,
            mode: special.fold(stored.mode & 0o777, |mode, (unix, _)| mode | unix),
            modified: stored.mtime,
            accessed: stored.atime,
            changed: stored.ctime,
            uid: stored.uid,
            gid: stored.gid,
            user: stored.user.into_bytes(),
            group: stored.group.into_bytes(),
            inode: stored.inode,
            device_id: stored.device_id,
            size: stored.size,
            links: stored.links,
            link_target,
            attributes: stored.extended_attributes.unwrap_or_default(),
            device: stored.device,
            content: stored.content,
            subtree: stored.subtree,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full() -> Node {
        Node {
            mode: 0o4755,
            modified: GoTime { seconds: 1_700_000_000, nanos: 1 },
            accessed: GoTime { seconds: 1_700_000_000, nanos: 1 },
            changed: GoTime { seconds: 1_700_000_001, nanos: 0 },
            uid: 1000,
            gid: 100,
            user: b"ada".to_vec(),
            group: b"users".to_vec(),
            inode: 42,
            device_id: 2049,
            size: 5,
            links: 1,
            attributes: vec![Attribute { name: "user.a".to_owned(), value: b"<b>".to_vec() }],
            content: Some(vec![Id::of(b"hello")]),
            ..Node::new(b"a <b>\xff", NodeKind::File)
        }
    }

    #[test]
    fn a_tree_has_the_bytes_that_restic_writes() {
        let mut tree = Tree::default();
        tree.add(&full()).unwrap();
        let folder = Node { mode: 0o1777, subtree: Some(Id::of(b"")), ..Node::new(b"z", NodeKind::Folder) };
        tree.add(&folder).unwrap();
        let expected = concat!(
            r#"{"nodes":[{"name":"a \u003cb\u003e\\xff","type":"file","mode":8389101,"#,
            r#""mtime":"2023-11-14T22:13:20.000000001Z","atime":"2023-11-14T22:13:20.000000001Z","#,
            r#""ctime":"2023-11-14T22:13:21Z","uid":1000,"gid":100,"user":"ada","group":"users","inode":42,"#,
            r#""device_id":2049,"size":5,"links":1,"extended_attributes":[{"name":"user.a","value":"PGI+"}],"#,
            r#""content":["2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"]},"#,
            r#"{"name":"z","type":"dir","mode":2148532735,"mtime":"0001-01-01T00:00:00Z","#,
            r#""atime":"0001-01-01T00:00:00Z","ctime":"0001-01-01T00:00:00Z","uid":0,"gid":0,"content":null,"#,
            r#""subtree":"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]}"#,
            "\n"
        );
        let json = tree.finish();
        assert_eq!(String::from_utf8(json.clone()).unwrap(), expected);
        assert_eq!(Tree::nodes(&json).unwrap(), [full(), folder]);
        assert_eq!(Tree::default().finish(), b"{\"nodes\":[]}\n");
    }

    #[test]
    fn every_kind_survives() {
        for kind in NodeKind::ALL {
            for mode in [0, 0o644, 0o7777] {
                let node = Node { mode, device: 259, link_target: b"to\xfe".to_vec(), ..Node::new(b"n", kind) };
                let mut tree = Tree::default();
                tree.add(&node).unwrap();
                assert_eq!(Tree::nodes(&tree.finish()).unwrap(), [node]);
            }
        }
    }

    #[test]
    fn a_tree_can_be_added_to_the_json_of_a_folder() {
        let (folder, id) = (Node::new(b"a", NodeKind::Folder), Id::of(b""));
        let (mut one, mut other) = (Tree::default(), Tree::default());
        one.add_json(b"a", &folder.to_json(), Some(&id)).unwrap();
        other.add(&Node { subtree: Some(id), ..folder.clone() }).unwrap();
        assert_eq!(one.finish(), other.finish());
        assert_eq!(Node::from_json(folder.to_json().as_bytes()).unwrap(), folder);
    }

    #[test]
    fn entries_out_of_order_are_not_written() {
        let mut tree = Tree::default();
        tree.add(&Node::new(b"b", NodeKind::File)).unwrap();
        for name in ["a", "b"] {
            assert!(tree.add(&Node::new(name.as_bytes(), NodeKind::File)).is_err());
        }
    }

    #[test]
    fn names_that_lead_elsewhere_and_damage_are_refused() {
        let tree = |name: &str| format!(r#"{{"nodes":[{{"name":"{name}","type":"file","content":[]}}]}}"#);
        assert_eq!(Tree::nodes(tree("..a").as_bytes()).unwrap().len(), 1);
        for name in ["", ".", "..", "a/b", "../x", r"\\x2fetc", r"a\\x00", r"\\q"] {
            assert!(Tree::nodes(tree(name).as_bytes()).is_err(), "{name}");
        }
        let whole = tree("a");
        for end in 0..whole.len() {
            assert!(Tree::nodes(&whole.as_bytes()[..end]).is_err(), "{end}");
        }
        assert!(Tree::nodes(format!("{whole}x").as_bytes()).is_err());
    }

    #[test]
    fn a_visitor_can_stop() {
        let mut tree = Tree::default();
        for name in ["a", "b", "c"] {
            tree.add(&Node::new(name.as_bytes(), NodeKind::File)).unwrap();
        }
        let (json, mut seen) = (tree.finish(), 0);
        Tree::visit(&json, &mut |_| {
            seen += 1;
            seen < 2
        })
        .unwrap();
        assert_eq!(seen, 2);
    }
}
