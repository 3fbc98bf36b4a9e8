//! hwloc's description of a machine: an XML file, in version 1 to 3 of its format.

use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use roxmltree::{Document, ParsingOptions};

use super::cpu_list::CpuList;
use super::node::{Node, NodeId};

/// The largest file that is read, in bytes. A machine of 2,000 processors has a file of 2 MiB.
const SIZE_MAX: u64 = 64 << 20;

/// Reads the file that `HWLOC_XMLFILE` names, if `HWLOC_THISSYSTEM=1` says that the file describes
/// this machine. Without that variable the file may describe any machine, and hwloc binds nothing
/// by it. A file that cannot be read is logged and ignored.
pub(super) fn from_environment() -> Option<Vec<Node>> {
    let path = PathBuf::from(std::env::var_os("HWLOC_XMLFILE")?);
    if std::env::var_os("HWLOC_THISSYSTEM")? != "1" {
        return None;
    }
    let read = read(&path).inspect_err(|error| {
        log::warn!(
            target: "selvedge::core::core",
            "HWLOC_XMLFILE={}: {error}; the kernel's description of the nodes is used",
            path.display()
        );
    });
    read.ok()
}

fn read(path: &Path) -> io::Result<Vec<Node>> {
    let metadata = fs::metadata(path)?;
    if !metadata.is_file() || metadata.len() > SIZE_MAX {
        let reason = format!("not a file of at most {SIZE_MAX} bytes");
        return Err(invalid(reason));
    }
    parse(&fs::read_to_string(path)?)
}

/// Parses the nodes of a description.
fn parse(text: &str) -> io::Result<Vec<Node>> {
    let options = ParsingOptions {
        // Files begin with the line `<!DOCTYPE topology SYSTEM "hwloc2.dtd">`.
        allow_dtd: true,
        ..ParsingOptions::default()
    };
    let document = Document::parse_with_options(text, options).map_err(invalid)?;
    let objects = document.descendants();
    let nodes =
        objects.filter(|it| it.has_tag_name("object") && it.attribute("type") == Some("NUMANode"));
    let parsed: io::Result<Vec<_>> = nodes.map(node).collect();
    match parsed {
        Ok(nodes) if nodes.is_empty() => Err(invalid("it has no object of type NUMANode")),
        parsed => parsed,
    }
}

fn node(object: roxmltree::Node<'_, '_>) -> io::Result<Node> {
    let id = object.attribute("os_index").and_then(|id| id.parse().ok());
    let id = id.ok_or_else(|| invalid("a NUMANode has no os_index"))?;
    // A node without processors has no cpuset in version 1.
    let cpus = cpu_set(object.attribute("cpuset").unwrap_or("0x0"))?;
    let memory = object.attribute("local_memory").unwrap_or("0");
    Ok(Node {
        id: NodeId(id),
        cpus,
        has_memory: memory != "0",
    })
}

/// Parses a bitmap of hwloc: words of 32 bits in hexadecimal, separated by commas, the highest word
/// first. An empty word is 0.
fn cpu_set(text: &str) -> io::Result<CpuList> {
    let mut cpus = CpuList::default();
    for (index, word) in text.rsplit(',').enumerate() {
        let digits = if word.is_empty() {
            Some("0")
        } else {
            word.strip_prefix("0x")
        };
        let bits = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let bits = bits.ok_or_else(|| invalid(format!("{text:?} is not a set of processors")))?;
        let set = (0..32).filter(|bit| bits >> bit & 1 == 1);
        set.for_each(|bit| cpus.push(index * 32 + bit));
    }
    Ok(cpus)
}

fn invalid(reason: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The objects that hwloc 2 writes for two packages, a node of memory alone, and a node without
    /// memory.
    const VERSION_2: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
  <object type="Machine" os_index="0" cpuset="0x00000003,0xffffffff" nodeset="0x0000000f">
    <info name="Backend" value="Linux"/>
    <object type="NUMANode" os_index="2" cpuset="0x0" nodeset="0x4" local_memory="17179869184"/>
    <object type="Package" os_index="0" cpuset="0x0000ffff" nodeset="0x1">
      <object type="NUMANode" os_index="0" cpuset="0x0000ffff" local_memory="1024">
        <page_type size="4096" count="16402413"/>
      </object>
      <object type="PU" os_index="0" cpuset="0x00000001"/>
    </object>
    <object type="Package" os_index="1" cpuset="0x00000001,0xfffe0000" nodeset="0x2">
      <object type="NUMANode" os_index="1" cpuset="0x00000001,0xfffe0000" local_memory="1024"/>
    </object>
    <object type="NUMANode" os_index="3" cpuset="0x00000002,"/>
  </object>
</topology>"#;

    #[test]
    fn nodes_of_a_description_have_their_processors_and_memory() {
        let mut nodes = parse(VERSION_2).unwrap();
        nodes.sort_by_key(|node| node.id);
        let found: Vec<_> = nodes
            .iter()
            .map(|node| (node.id.0, node.cpus.to_string(), node.has_memory))
            .collect();
        let expected = [
            (0, "0-15", true),
            (1, "17-32", true),
            (2, "", true),
            (3, "33", false),
        ];
        assert_eq!(
            found,
            expected.map(|(id, cpus, memory)| (id, cpus.to_owned(), memory))
        );
    }

    #[test]
    fn nodes_of_version_1_contain_their_processors() {
        let text = r#"<!DOCTYPE topology SYSTEM "hwloc.dtd"><topology>
            <object type="Machine" os_index="0" cpuset="0xf...f">
              <object type="NUMANode" os_index="1" cpuset="0x0000000c" local_memory="4096">
                <object type="PU" os_index="2"/>
              </object>
            </object></topology>"#;
        let nodes = parse(text).unwrap();
        assert_eq!(
            (nodes[0].id, nodes[0].cpus.to_string()),
            (NodeId(1), "2-3".into())
        );
    }

    #[test]
    fn a_description_that_is_malformed_is_refused_with_the_reason() {
        let of = |object: &str| format!("<topology><object {object}/></topology>");
        let table = [
            ("<topology>".to_owned(), "root"),
            (of(r#"type="Machine""#), "no object of type NUMANode"),
            (of(r#"type="NUMANode""#), "os_index"),
            (of(r#"type="NUMANode" os_index="-1""#), "os_index"),
            (of(r#"type="NUMANode" os_index="0" cpuset="0xg""#), "0xg"),
            (
                of(r#"type="NUMANode" os_index="0" cpuset="0x123456789""#),
                "0x123456789",
            ),
        ];
        for (text, reason) in table {
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
        for path in ["/dev/zero", "/"] {
            let error = read(Path::new(path)).unwrap_err().to_string();
            assert!(error.contains("not a file"), "{path}: {error}");
        }
    }
}
