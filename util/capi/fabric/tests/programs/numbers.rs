//! Compares Selvedge's numbers and structures with those of libfabric's 2.7 headers.
//! `libfabric-2.7.txt` lists these, because machines have older headers or none.

use std::collections::{HashMap, HashSet};
use std::fmt::Debug;
use std::fmt::Write;
use std::fs;
use std::path::Path;

use selvedge::atomic::{Datatype, Op};
use selvedge::info::{EpType, Progress, Protocol, ResourceMgmt, Threading, TrafficClass};
use selvedge::{
    AddrFormat, Caps, CompletionFlags, EpOptionName, Errno, InfoFlags, Mode, MrAccess, MrMode,
    MsgOrder, OpFlags, av, cntr, collective, mr, wait,
};

use crate::harness::{Built, compile, create_once, has, output_of, with_selvedge};
use crate::layout::STRUCTURES;

pub(crate) static LIST: &str = include_str!("../libfabric-2.7.txt");

/// The lines of one kind, as the words behind the kind.
pub(crate) fn lines(kind: &str) -> impl Iterator<Item = Vec<&'static str>> {
    let lines = LIST.lines().map(|line| line.split(' '));
    lines.filter_map(move |mut words| (words.next() == Some(kind)).then(|| words.collect()))
}

/// Parses a number. A negative number is in two's complement of 64 bits.
pub(crate) fn number(text: &str) -> u64 {
    match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).unwrap(),
        None => text.parse::<i64>().unwrap().cast_unsigned(),
    }
}

/// Every enumerator and every macro by its name.
fn numbers() -> HashMap<&'static str, u64> {
    let enumerators = lines("enum").map(|words| (words[1], number(words[2])));
    let macros = lines("macro").map(|words| (words[0], number(words[1])));
    enumerators.chain(macros).collect()
}

/// The list, the names that were compared with it, and the differences.
struct Comparison {
    header: HashMap<&'static str, u64>,
    compared: HashSet<String>,
    differences: Vec<String>,
}

impl Comparison {
    fn check(&mut self, name: String, selvedge: u64) {
        match self.header.get(&*name) {
            Some(header) if *header == selvedge => drop(self.compared.insert(name)),
            header => self
                .differences
                .push(format!("{name}: {selvedge:#x}, not {header:x?}")),
        }
    }

    fn flags(&mut self, prefix: &str, flags: impl IntoIterator<Item = (&'static str, u64)>) {
        for (name, bits) in flags {
            self.check(format!("{prefix}{name}"), bits);
        }
    }

    /// Compares numbers whose names are those of variants.
    fn variants<T: Debug>(&mut self, prefix: &str, all: impl IntoIterator<Item = (T, u64)>) {
        for (variant, number) in all {
            self.check(format!("{prefix}{}", in_capitals(&variant)), number);
        }
    }

    /// Compares the constants of a module in `source`.
    fn constants(&mut self, source: &str, module: &str, prefix: &str) {
        let begin = format!("pub mod {module} {{\n");
        let body = source.split_once(&begin).unwrap().1;
        let body = body.split_once("\n}").unwrap().0;
        for (name, value) in body.lines().filter_map(constant) {
            self.check(format!("{prefix}{name}"), value);
        }
    }
}

/// `CswapNe` as `CSWAP_NE`.
fn in_capitals(variant: &impl Debug) -> String {
    let mut name = String::new();
    for character in format!("{variant:?}").chars() {
        if character.is_uppercase() && !name.is_empty() {
            name.push('_');
        }
        name.push(character.to_ascii_uppercase());
    }
    name
}

/// A line such as `pub const NAME: u32 = 1 << 4;`.
fn constant(line: &str) -> Option<(&str, u64)> {
    let (name, rest) = line.trim().strip_prefix("pub const ")?.split_once(": ")?;
    let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
    Some(match value.split_once(" << ") {
        Some((one, shift)) => (name, number(one) << number(shift)),
        None => (name, number(value)),
    })
}

macro_rules! bits {
    ($set:ty) => {
        <$set>::all()
            .iter_names()
            .map(|(name, set)| (name, u64::from(set.bits())))
    };
}

macro_rules! texts {
    ($comparison:ident: $($kind:ty)+) => {$(
        for value in <$kind>::ALL {
            $comparison.check(value.text().to_owned(), u64::from(*value as u32));
        }
    )+};
}

macro_rules! raw {
    ($($value:expr),+ $(,)?) => { [$(($value, u64::from($value as u32))),+] };
}

fn compare_flags(comparison: &mut Comparison) {
    comparison.flags("FI_", bits!(Caps));
    comparison.flags("FI_", bits!(Mode));
    // Lent messages are Selvedge's own.
    let flags = CompletionFlags::all() - CompletionFlags::LENT;
    comparison.flags(
        "FI_",
        flags.iter_names().map(|(name, set)| (name, set.bits())),
    );
    comparison.flags("FI_", bits!(MrAccess));
    comparison.flags("FI_", bits!(InfoFlags));
    comparison.flags("FI_MR_", bits!(MrMode));
    comparison.flags("FI_", bits!(mr::Flags));
    comparison.flags("FI_ORDER_", bits!(MsgOrder));
    // Internal bits and lent messages, which C does not use.
    let internal = OpFlags::DEFAULT | OpFlags::DEFERRED | OpFlags::LEND;
    let flags = OpFlags::all() - internal;
    comparison.flags(
        "FI_",
        flags.iter_names().map(|(name, set)| (name, set.bits())),
    );
}

fn compare_enumerations(comparison: &mut Comparison) {
    texts!(comparison: AddrFormat EpType Threading Progress ResourceMgmt Protocol TrafficClass);
    comparison.variants("FI_", Op::ALL.iter().map(|op| (op, *op as u64)));
    comparison.variants("FI_", Datatype::ALL.iter().map(|kind| (kind, *kind as u64)));
    use collective::Op as Collective;
    comparison.variants(
        "FI_",
        raw![
            Collective::Barrier,
            Collective::Broadcast,
            Collective::Alltoall,
            Collective::Allreduce,
            Collective::Allgather,
            Collective::ReduceScatter,
            Collective::Reduce,
            Collective::Scatter,
            Collective::Gather
        ],
    );
    use wait::Object;
    let objects = raw![Object::None, Object::Unspec, Object::Fd, Object::Yield];
    comparison.variants("FI_WAIT_", objects);
    comparison.variants(
        "FI_HMEM_",
        mr::HmemIface::ALL
            .iter()
            .map(|iface| (iface, *iface as u64)),
    );
    let types = raw![av::Type::Unspec, av::Type::Map, av::Type::Table];
    comparison.variants("FI_AV_", types);
    let events = raw![cntr::Events::Comp, cntr::Events::Bytes];
    comparison.variants("FI_CNTR_EVENTS_", events);
    // `EagerSize` is Selvedge's own, among the numbers for providers.
    let options = EpOptionName::ALL.iter().map(|name| (name, *name as u64));
    comparison.variants(
        "FI_OPT_",
        options.filter(|(name, _)| **name != EpOptionName::EagerSize),
    );
}

fn compare_modules(comparison: &mut Comparison) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../abi/src");
    let read = |file| fs::read_to_string(folder.join(file)).unwrap();
    let (numbers, fid) = (read("number.rs"), read("headers/fid.rs"));
    let modules = [
        ("control", "FI_"),
        ("bind", "FI_"),
        ("event", "FI_"),
        ("cq_format", "FI_CQ_FORMAT_"),
        ("work", "FI_OP_"),
        ("kind", "FI_TYPE_"),
        ("param", "FI_PARAM_"),
        ("bus", "FI_BUS_"),
        ("link", "FI_LINK_"),
        ("option", "FI_OPT_"),
    ];
    for (module, prefix) in modules {
        comparison.constants(&numbers, module, prefix);
    }
    comparison.constants(&fid, "fclass", "FI_CLASS_");
    let modules_found: Vec<_> = numbers.matches("pub mod ").collect();
    // `av` and `atomic`, whose names differ from the headers', are compared below.
    assert_eq!(modules_found.len(), modules.len() + 2, "modules of numbers");
    use selvedge_abi::number::{TRIGGER_THRESHOLD, atomic, av};
    let sets = (0..9).map(|index| 1 << (40 + index)).sum::<u64>();
    assert_eq!(av::COLLECTIVE_SETS, sets);
    let single_numbers = [
        ("FI_SYMMETRIC", av::SYMMETRIC),
        ("FI_SYNC_ERR", av::SYNC_ERR),
        ("FI_UNIVERSE", av::UNIVERSE),
        (
            "FI_BARRIER_SET",
            av::COLLECTIVE_SETS & !(av::COLLECTIVE_SETS << 1),
        ),
        (
            "FI_GATHER_SET",
            av::COLLECTIVE_SETS & !(av::COLLECTIVE_SETS >> 1),
        ),
        ("FI_FETCH_ATOMIC", atomic::FETCH),
        ("FI_COMPARE_ATOMIC", atomic::COMPARE),
        ("FI_TRIGGER_THRESHOLD", u64::from(TRIGGER_THRESHOLD)),
    ];
    for (name, value) in single_numbers {
        comparison.check(name.to_owned(), value);
    }
}

/// Fabric errors that either the headers or Selvedge lacks; numbers below 256 are the system's.
fn differing_errors(header: &HashMap<&str, u64>) -> Vec<String> {
    let selvedge = Errno::ALL.iter().map(|errno| errno.as_raw() as u64);
    let selvedge: HashSet<_> = selvedge.filter(|errno| *errno >= 256).collect();
    let names = lines("enum").map(|words| words[1]);
    let names = names.take_while(|name| *name != "FI_ERRNO_MAX");
    let header: HashSet<_> = names.map(|name| header[name]).collect();
    let different = selvedge.symmetric_difference(&header);
    different.map(|errno| format!("error {errno}")).collect()
}

#[test]
fn every_number_is_that_of_libfabric_s_newest_headers() {
    let mut comparison = Comparison {
        header: numbers(),
        compared: HashSet::new(),
        differences: Vec::new(),
    };
    compare_flags(&mut comparison);
    compare_enumerations(&mut comparison);
    compare_modules(&mut comparison);
    comparison
        .differences
        .extend(differing_errors(&comparison.header));
    let differences = comparison.differences.join("\n");
    assert!(differences.is_empty(), "{differences}");
    let count = comparison.compared.len();
    assert!(count > 300, "{count} numbers were compared");
}

/// Members that the list does not have, because they are in unions.
const IN_UNIONS: [(&str, &str); 5] = [
    ("fi_domain_attr", "data_progress"),
    ("fi_mr_attr", "mr_iov"),
    ("fi_triggered_context", "cntr"),
    ("fi_triggered_context", "threshold"),
    ("fi_triggered_context", "internal"),
];

/// Structures that the library does not read or write: entries of programs, and structures of
/// accelerators and providers.
const NOT_DECLARED: [&str; 19] = [
    "fi_context",
    "fi_context2",
    "fi_recv_context",
    "fi_mutex_cond",
    "fi_wait_pollfd",
    "fi_cq_entry",
    "fi_cq_msg_entry",
    "fi_cq_data_entry",
    "fi_cq_tagged_entry",
    "fi_mr_xpu_desc",
    "fi_mr_dmabuf",
    "fi_mr_auth_key",
    "fi_hmem_override_ops",
    "fi_trigger_threshold",
    "fi_trigger_var",
    "fi_trigger_xpu",
    "fi_triggered_context2",
    "fi_msg_compare",
    "fi_fid_var",
];

#[test]
fn every_structure_is_laid_out_as_in_libfabric_s_newest_headers() {
    let sizes: HashMap<_, _> = lines("struct")
        .map(|words| (words[0], number(words[1])))
        .collect();
    let mut differences = Vec::new();
    for (structure, members, size, renamed) in STRUCTURES {
        if sizes.get(structure) != Some(&(*size as u64)) {
            differences.push(format!(
                "{structure}: {size}, not {:?}",
                sizes.get(structure)
            ));
        }
        let selvedge = members.iter().map(|(member, offset)| {
            let renamed = renamed.iter().find(|(name, _)| name == member);
            (renamed.map_or(*member, |(_, header)| header), *offset)
        });
        let selvedge: HashMap<_, _> = selvedge.collect();
        let is_table = structure.starts_with("fi_ops");
        let header = lines("member").filter(|words| words[0] == *structure);
        let header = header.map(|words| (words[1], number(words[2]) as usize));
        let header: HashMap<_, _> = header
            .filter(|words| !(is_table && words.0 == "size"))
            .collect();
        for (member, offset) in &header {
            let base = |name: &str| name.split('.').next() == Some(member);
            let is_declared = selvedge
                .iter()
                .any(|(name, other_offset)| base(name) && other_offset == offset);
            // The headers declare an array without a length behind the last member.
            let is_declared = is_declared || (*structure, *member) == ("fi_eq_cm_entry", "data");
            if !is_declared {
                differences.push(format!("{structure}: {member} is not at {offset}"));
            }
        }
        for (member, _) in *members {
            let renamed = renamed.iter().find(|(name, _)| name == member);
            let named = renamed.map_or(*member, |(_, header)| header);
            let is_in_header = header.contains_key(named.split('.').next().unwrap());
            if !is_in_header && !IN_UNIONS.contains(&(*structure, *member)) {
                differences.push(format!("{structure}: the headers have no {member}"));
            }
        }
    }
    let selvedge: HashSet<_> = STRUCTURES.iter().map(|(name, ..)| *name).collect();
    let missing = sizes
        .keys()
        .filter(|name| !selvedge.contains(*name) && !NOT_DECLARED.contains(name));
    differences.extend(missing.map(|name| format!("{name} is not compared")));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Kinds of `fi_tostr` with their enumerations. An enumeration without a name is given by the
/// prefix of its enumerators.
const PRINTED: [(&str, &str); 15] = [
    ("FI_TYPE_EP_TYPE", "FI_EP_"),
    ("FI_TYPE_ADDR_FORMAT", "FI_SOCKADDR"),
    ("FI_TYPE_ADDR_FORMAT", "FI_ADDR_"),
    ("FI_TYPE_THREADING", "FI_THREAD_"),
    ("FI_TYPE_PROGRESS", "FI_PROGRESS_"),
    ("FI_TYPE_PROTOCOL", "FI_PROTO_"),
    ("FI_TYPE_AV_TYPE", "fi_av_type"),
    ("FI_TYPE_ATOMIC_TYPE", "fi_datatype"),
    ("FI_TYPE_ATOMIC_OP", "fi_op"),
    ("FI_TYPE_OP_TYPE", "fi_op_type"),
    ("FI_TYPE_COLLECTIVE_OP", "fi_collective_op"),
    ("FI_TYPE_HMEM_IFACE", "fi_hmem_iface"),
    ("FI_TYPE_CQ_FORMAT", "fi_cq_format"),
    ("FI_TYPE_CQ_WAIT_COND", "fi_cq_wait_cond"),
    ("FI_TYPE_WAIT_OBJ", "fi_wait_obj"),
];

/// The kind that prints an enumerator.
fn kind_of(enumeration: &str, name: &str) -> Option<&'static str> {
    let has_enumerator = |(_, prefix): &&(&str, &str)| {
        if prefix.starts_with("FI_") {
            enumeration != "fi_op" && name.starts_with(prefix)
        } else {
            enumeration == *prefix
        }
    };
    PRINTED.iter().find(has_enumerator).map(|(kind, _)| *kind)
}

#[test]
fn fi_tostr_names_the_enumerators_of_libfabric_s_newest_headers() {
    if !has(&["cc"]) {
        return;
    }
    let numbers = numbers();
    let mut source = String::new();
    for words in lines("enum") {
        if let Some(kind) = kind_of(words[0], words[1]) {
            let (kind, name, value) = (numbers[kind], words[1], words[2]);
            writeln!(source, "E({kind}, {value}, \"{name}\");").unwrap();
        }
    }
    let include = Path::new(env!("CARGO_TARGET_TMPDIR")).join("names");
    fs::create_dir_all(&include).unwrap();
    create_once(include.join("enumerators.h"), |file| {
        fs::write(file, &source).unwrap();
    });
    let program = compile("names", Built::ForSelvedge, Some(&include));
    let differences = output_of(&mut with_selvedge(program));
    assert_eq!(differences, "");
}
