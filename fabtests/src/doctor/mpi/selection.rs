//! `Selection`: the transport and the provider that an MPI library has selected, read from what it
//! prints about its own selection.

use super::rank::RankReport;

/// An implementation of MPI, by the version that its library prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH, and MVAPICH 3 and later, which is built on it.
    Mpich,
    /// Intel MPI.
    IntelMpi,
    /// Any other.
    Other,
}

impl Family {
    /// The family of a version text.
    pub(super) fn of(version: &str) -> Self {
        let begins = |names: &[&str]| names.iter().any(|name| version.starts_with(name));
        if begins(&["Open MPI"]) {
            Self::OpenMpi
        } else if begins(&["Intel(R) MPI"]) {
            Self::IntelMpi
        } else if begins(&["MPICH", "MVAPICH"]) {
            Self::Mpich
        } else {
            Self::Other
        }
    }
}

/// The transport between two ranks of this host.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Selection {
    /// The transport, in the words of the implementation.
    pub(super) transport: String,
    /// The provider of libfabric that is in use, if any.
    pub(super) provider: Option<String>,
    /// The lines that say so.
    pub(super) evidence: Vec<String>,
    /// Rules and rejections that explain the provider.
    pub(super) reasons: Vec<String>,
}

impl Selection {
    /// Reads the output of ranks.
    pub(super) fn read(family: Family, text: &str, rank: &RankReport) -> Self {
        let lines = Lines(text.lines().map(message).collect());
        match family {
            Family::OpenMpi => Self::of_open_mpi(&lines),
            Family::Mpich => Self::of_mpich(&lines, rank),
            Family::IntelMpi => Self::of_intel_mpi(&lines),
            Family::Other => Self::default(),
        }
    }

    fn of_open_mpi(lines: &Lines<'_>) -> Self {
        let mut selection = Self::default();
        let Some((pml, line)) = lines.word("selected ", " best priority") else {
            return selection;
        };
        selection.evidence.push(line.to_owned());
        selection.transport = format!("pml {pml}");
        if pml == "cm" {
            if let Some((mtl, line)) = lines.word("(  mtl) Selected component [", "]") {
                selection.transport += &format!(" with mtl {mtl}");
                selection.evidence.push(line.to_owned());
            }
            selection.read_provider(lines, "mtl:ofi:");
        } else if let Some((btl, line)) = lines.words("mca: bml: Using ", " btl").find(is_remote) {
            selection.transport += &format!(" with btl {btl}");
            selection.evidence.push(line.to_owned());
            if btl == "ofi" {
                selection.read_provider(lines, "btl:ofi:");
            }
        }
        if selection.provider.is_none() {
            let failures = [
                "component ofi returned failure",
                "failure for component ofi",
            ];
            selection
                .reasons
                .extend(lines.distinct(|it| failures.iter().any(|end| it.contains(end))));
            selection.add_rules(lines, "mtl:ofi:");
        }
        selection
    }

    /// Reads the provider of a component of Open MPI. Version 4 names it `prov`, and calls the
    /// domain `provider`.
    fn read_provider(&mut self, lines: &Lines<'_>, component: &str) {
        let names = ["prov: ", "provider: "];
        let mut found = names
            .iter()
            .filter_map(|name| lines.word(&format!("{component}{name}"), ""));
        if let Some((provider, line)) = found.next() {
            self.provider = Some(provider.to_owned());
            self.evidence.push(line.to_owned());
        }
        self.add_rules(lines, component);
    }

    fn add_rules(&mut self, lines: &Lines<'_>, component: &str) {
        let words = [
            "provider_include =",
            "provider_exclude =",
            "in exclude list",
            "not in include list",
        ];
        let is_rule =
            |line: &str| line.contains(component) && words.iter().any(|it| line.contains(it));
        self.reasons.extend(lines.distinct(is_rule));
    }

    fn of_mpich(lines: &Lines<'_>, rank: &RankReport) -> Self {
        let mut selection = Self::default();
        if let Some((provider, line)) = lines.word("libfabric provider: ", " - ") {
            selection.transport = "netmod ofi".to_owned();
            selection.provider = Some(provider.to_owned());
            selection.evidence.push(line.to_owned());
            let rejected = |it: &str| it.starts_with("provider: ") && it.contains("score = ");
            selection.reasons = lines.distinct(rejected);
            selection.reasons.truncate(20);
        } else if let Some((netmod, line)) = lines.word("==== ", " netmod Capability") {
            selection.transport = format!("netmod {}", netmod.to_lowercase());
            selection.evidence.push(line.to_owned());
        }
        let no_local = rank.variables.get("MPIR_CVAR_NOLOCAL");
        if !selection.transport.is_empty() && no_local.is_none_or(|value| value == "0") {
            selection.transport += ", between hosts; MPICH's own shared memory inside a host";
            selection
                .evidence
                .push("MPIR_CVAR_NOLOCAL is not set in the ranks".to_owned());
        }
        selection
    }

    fn of_intel_mpi(lines: &Lines<'_>) -> Self {
        let mut selection = Self::default();
        let shm = lines
            .0
            .iter()
            .find(|line| line.contains("shm segment size"));
        if let Some((provider, line)) = lines.word("libfabric provider: ", "") {
            selection.provider = Some(provider.to_owned());
            selection.evidence.push(line.to_owned());
            selection.transport = match shm {
                Some(_) => {
                    "fabrics shm:ofi: libfabric between hosts, Intel MPI's own shared \
                            memory inside a host"
                }
                None => "fabrics ofi",
            }
            .to_owned();
        } else if shm.is_some() {
            selection.transport = "fabrics shm: Intel MPI's own shared memory".to_owned();
        }
        selection
            .evidence
            .extend(shm.map(|line| (*line).to_owned()));
        let fabric = |line: &str| line.contains("shm fabric") || line.contains("libfabric loaded");
        selection.reasons = lines.distinct(fabric);
        selection
    }
}

/// Lines without the process that printed them.
struct Lines<'a>(Vec<&'a str>);

impl<'a> Lines<'a> {
    /// The words between two texts, with their lines.
    fn words(&self, start: &str, end: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.0.iter().filter_map(move |line| {
            let (_, rest) = line.split_once(start)?;
            let (word, _) = if end.is_empty() {
                (rest, "")
            } else {
                rest.split_once(end)?
            };
            Some((word.trim(), *line))
        })
    }

    fn word(&self, start: &str, end: &str) -> Option<(&'a str, &'a str)> {
        self.words(start, end).next()
    }

    /// The lines that a rule selects, each once.
    fn distinct(&self, selects: impl Fn(&str) -> bool) -> Vec<String> {
        let mut found = Vec::new();
        for line in self.0.iter().filter(|line| selects(line)) {
            if !found.iter().any(|it| it == line) {
                found.push((*line).to_owned());
            }
        }
        found
    }
}

/// Whether a component carries messages to another rank.
fn is_remote((component, _): &(&str, &str)) -> bool {
    *component != "self"
}

/// A line without the name of the process, and without the source file of Open MPI in it.
fn message(line: &str) -> &str {
    let line = line.trim();
    let text = match line
        .strip_prefix('[')
        .and_then(|rest| rest.split_once("] "))
    {
        Some((process, text)) if !process.contains(' ') => text,
        _ => line,
    };
    match text
        .split_once(".c:")
        .and_then(|(_, rest)| rest.split_once(": "))
    {
        Some((number, text)) if number.bytes().all(|it| it.is_ascii_digit()) => text,
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(family: Family, text: &str) -> Selection {
        Selection::read(family, text, &RankReport::default())
    }

    const OPEN_MPI: &str = "\
[vm:1] mca:base:select:(  mtl) Selected component [ofi]
[vm:1] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:583: mtl:ofi:provider_include = \"(null)\"
[vm:1] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:329: mtl:ofi: \"tcp;ofi_rxm\" in exclude list
[vm:2] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:329: mtl:ofi: \"tcp;ofi_rxm\" in exclude list
[vm:1] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:337: mtl:ofi:prov: net
[vm:1] ../ompi/mca/mtl/ofi/mtl_ofi_component.c:365: mtl:ofi:provider: eth0
[vm:1] selected cm best priority 25
";

    #[test]
    fn the_provider_of_open_mpi_is_read_with_the_lists_that_excluded_others() {
        let selection = read(Family::OpenMpi, OPEN_MPI);
        assert_eq!(selection.transport, "pml cm with mtl ofi");
        assert_eq!(selection.provider.as_deref(), Some("net"));
        let reasons = [
            "mtl:ofi:provider_include = \"(null)\"",
            "mtl:ofi: \"tcp;ofi_rxm\" in exclude list",
        ];
        assert_eq!(selection.reasons, reasons);
        let newer = OPEN_MPI.replace("prov: net\n", "provider: selvedge_shm\n");
        let newer = newer.replace("mtl:ofi:provider: eth0", "mtl:ofi:provider:domain: shm");
        let selection = read(Family::OpenMpi, &newer);
        assert_eq!(selection.provider.as_deref(), Some("selvedge_shm"));
    }

    #[test]
    fn transports_of_open_mpi_without_libfabric_are_named() {
        let text = "[vm:1] selected ob1 best priority 20\n\
                    [vm:1] mca: bml: Using self btl for send to [[1,1],0] on node vm\n\
                    [vm:1] mca: bml: Using vader btl for send to [[1,1],1] on node vm\n";
        let selection = read(Family::OpenMpi, text);
        assert_eq!(selection.transport, "pml ob1 with btl vader");
        assert_eq!(selection.provider, None);
        assert_eq!(selection.evidence.len(), 2);
        assert_eq!(read(Family::OpenMpi, ""), Selection::default());
    }

    #[test]
    fn mpich_and_intel_mpi_name_their_provider_and_their_own_shared_memory() {
        let text = "provider: tcp, score = 4, pref = 0, FI_SOCKADDR_IN [16] 192.0.2.2\n\
                    libfabric provider: sockets - 192.0.2.0/24\n";
        let selection = read(Family::Mpich, text);
        assert_eq!(selection.provider.as_deref(), Some("sockets"));
        assert!(selection.transport.starts_with("netmod ofi, between hosts"));
        assert_eq!(selection.reasons.len(), 1);
        let ucx = read(Family::Mpich, "==== UCX netmod Capability ====\n");
        assert!(ucx.transport.starts_with("netmod ucx") && ucx.provider.is_none());
        let text = "[0] MPI startup(): libfabric provider: tcp;ofi_rxm\n";
        let selection = read(Family::IntelMpi, text);
        assert_eq!(selection.provider.as_deref(), Some("tcp;ofi_rxm"));
        assert_eq!(selection.transport, "fabrics ofi");
        let text = "[0] MPI startup(): shm segment size (1068 MB per rank)\n";
        let selection = read(Family::IntelMpi, text);
        assert_eq!(
            selection.transport,
            "fabrics shm: Intel MPI's own shared memory"
        );
    }

    #[test]
    fn families_are_read_from_the_version_of_the_library() {
        assert_eq!(
            Family::of("Open MPI v4.1.4, package: Debian"),
            Family::OpenMpi
        );
        assert_eq!(Family::of("MPICH Version:      5.0.2"), Family::Mpich);
        assert_eq!(Family::of("MVAPICH Version: 3.0"), Family::Mpich);
        assert_eq!(Family::of("Intel(R) MPI Library 2021.18"), Family::IntelMpi);
        assert_eq!(Family::of("another"), Family::Other);
    }
}
