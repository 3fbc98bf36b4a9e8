//! The known variables: parameters of the core, and variables of libfabric that Selvedge does not
//! use.

use super::Spec;

/// The parameters of the core.
pub static CORE: [Spec; 12] = [
    Spec::text(
        "FI_PROVIDER",
        "",
        "comma-separated providers to use, or with a leading ^ not to use (default: all)",
    ),
    Spec::choice(
        "FI_ADDR_FORMAT",
        "",
        &[
            "",
            "fi_sockaddr",
            "fi_sockaddr_in",
            "fi_sockaddr_in6",
            "fi_sockaddr_ip",
            "fi_addr_str",
        ],
        "address format of the endpoints that discovery returns (default: any)",
    ),
    Spec::choice(
        "FI_LOG_LEVEL",
        "warn",
        &["off", "error", "warn", "trace", "info", "debug"],
        "least important messages that are printed",
    ),
    Spec::text(
        "FI_LOG_PROV",
        "",
        "comma-separated providers whose messages are printed, or with a leading ^ not printed \
         (default: all)",
    ),
    Spec::text(
        "FI_LOG_SUBSYS",
        "",
        "comma-separated subsystems whose messages are printed, or with a leading ^ not printed \
         (default: all)",
    ),
    Spec::text(
        "FI_HOOK",
        "",
        "layers around every provider, the outermost first, separated by semicolons: trace, perf, \
         flight, fault (default: none)",
    ),
    Spec::text(
        "FI_HOOK_FILE",
        "",
        "output file of hooks, with %p for the process number (default: standard error)",
    ),
    Spec::text(
        "FI_HOOK_FAULT",
        "",
        "rules of the fault hook: CALL:ACTION@WHEN, separated by semicolons (default: none)",
    ),
    Spec::int("FI_HOOK_SEED", 0, "random seed of the fault hook"),
    Spec::flag(
        "FI_SIGHT_CRASH",
        false,
        "on a crash, write the telemetry of fi_top to the file selvedge-PID.flight",
    ),
    Spec::text(
        "FI_SIGHT_SIGNAL",
        "",
        "signal that writes the file of FI_SIGHT_CRASH, such as USR2 (default: none)",
    ),
    Spec::text(
        "FI_SIGHT_DIR",
        ".",
        "directory of the files of FI_SIGHT_CRASH and FI_SIGHT_SIGNAL",
    ),
];

/// Variables of libfabric's core and of its shm provider that Selvedge does not use.
pub(super) const UNUSED: &[&str] = &[
    "FI_AV_REMOVE_CLEANUP",
    "FI_FORK_UNSAFE",
    "FI_HMEM",
    "FI_HMEM_DISABLE_P2P",
    "FI_LOG_INTERVAL",
    "FI_LOG_LOCATION",
    "FI_LOG_LOCATION_MODE",
    "FI_MR_CACHE_MAX_COUNT",
    "FI_MR_CACHE_MAX_SIZE",
    "FI_MR_CACHE_MONITOR",
    "FI_MR_CUDA_CACHE_MONITOR_ENABLED",
    "FI_MR_ROCR_CACHE_MONITOR_ENABLED",
    "FI_MR_ZE_CACHE_MONITOR_ENABLED",
    "FI_OFFLOAD_COLL_PROVIDER",
    "FI_PERF_CNTR",
    "FI_PREFER_SYSCONFIG",
    "FI_PROVIDER_PATH",
    "FI_SHM_BUFFER_THRESHOLD",
    "FI_SHM_ENABLE_DSA_PAGE_TOUCH",
    "FI_SHM_MAX_GDRCOPY_SIZE",
    "FI_SHM_SAR_THRESHOLD",
    "FI_SHM_USE_DSA_SAR",
    "FI_SHM_USE_XPMEM",
    "FI_UNIVERSE_SIZE",
    "FI_XPMEM_MEMCPY_CHUNKSIZE",
];

/// Prefixes of variables of libfabric's other providers. A variable with such a prefix is known,
/// unless a provider of the registry declares parameters with that prefix.
pub(super) const PREFIXES: &[&str] = &[
    "FI_BGQ_",
    "FI_COLL_",
    "FI_CXI_",
    "FI_EFA_",
    "FI_GNI_",
    "FI_HMEM_",
    "FI_LNX_",
    "FI_LPP_",
    "FI_MLX_",
    "FI_MON_",
    "FI_NET_",
    "FI_NETDIR_",
    "FI_OFI_",
    "FI_OFI_HOOK_",
    "FI_OFI_MRAIL_",
    "FI_OFI_RXD_",
    "FI_OFI_RXM_",
    "FI_OPX_",
    "FI_PSM_",
    "FI_PSM2_",
    "FI_PSM3_",
    "FI_SM2_",
    "FI_SOCKETS_",
    "FI_TCP_",
    "FI_UCX_",
    "FI_UDP_",
    "FI_USNIC_",
    "FI_VERBS_",
];

/// Returns the one of `names` with the smallest edit distance to `name`, for error texts, or `None`
/// if the distance is too large for a typing error.
pub fn nearest<'a>(name: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let tolerated = (name.len() / 6).clamp(1, 3);
    names
        .map(|known| (edit_distance(name, known), known))
        .filter(|&(distance, _)| distance <= tolerated)
        .min()
        .map(|(_, known)| known)
}

/// Returns the number of insertions, deletions, replacements and swaps of adjacent bytes that
/// change one name into the other (optimal string alignment).
fn edit_distance(first: &str, second: &str) -> usize {
    let (first, second) = (first.as_bytes(), second.as_bytes());
    let mut steps = vec![vec![0; second.len() + 1]; first.len() + 1];
    steps[0] = (0..=second.len()).collect();
    for i in 1..=first.len() {
        steps[i][0] = i;
        for j in 1..=second.len() {
            let replaced = steps[i - 1][j - 1] + usize::from(first[i - 1] != second[j - 1]);
            let mut fewest = replaced.min(steps[i - 1][j] + 1).min(steps[i][j - 1] + 1);
            if i > 1 && j > 1 && first[i - 1] == second[j - 2] && first[i - 2] == second[j - 1] {
                fewest = fewest.min(steps[i - 2][j - 2] + 1);
            }
            steps[i][j] = fewest;
        }
    }
    steps[first.len()][second.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edit_distances_count_typing_errors() {
        let table = [
            ("SIZE", "SIZE", 0),
            ("SZIE", "SIZE", 1),
            ("SIZ", "SIZE", 1),
            ("SIZEE", "SIZE", 1),
            ("SIXE", "SIZE", 1),
            ("", "SIZE", 4),
            ("kitten", "sitting", 3),
        ];
        for (first, second, distance) in table {
            assert_eq!(edit_distance(first, second), distance, "{first} {second}");
            assert_eq!(edit_distance(second, first), distance, "{second} {first}");
        }
    }

    #[test]
    fn an_unrelated_name_has_no_nearest_name() {
        assert_eq!(nearest("FI_ELSEWHERE", ["FI_PROVIDER"].into_iter()), None);
    }
}
