//! What launchers of parallel programs say of the job in the environment of its processes.

/// Whether the launcher says that all processes of this program's job run on this host. `value` has
/// the variables of the environment.
pub(super) fn runs_on_one_host(value: &dyn Fn(&str) -> Option<String>) -> bool {
    let number = |name: &str| value(name)?.trim().parse::<u64>().ok();
    let mut counts = PROCESSES.iter();
    let counted = counts.find_map(|(all, local)| Some((number(all)?, number(local)?)));
    match counted {
        Some((all, local)) => all == local,
        None => HOSTS.iter().find_map(|name| number(name)) == Some(1),
    }
}

/// How many processes the job has, and how many of them this host has: Open MPI's launchers, and
/// Hydra, which starts MPICH's programs and Intel MPI's.
const PROCESSES: [(&str, &str); 2] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
];

/// How many hosts the job has: Slurm's `srun`, Flux.
const HOSTS: [&str; 2] = ["SLURM_STEP_NUM_NODES", "FLUX_JOB_NNODES"];

#[cfg(test)]
mod tests {
    use super::*;

    fn is_alone(set: &[(&str, &str)]) -> bool {
        runs_on_one_host(&|name| {
            let found = set.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn launcher_variables_identify_a_job_on_one_host() {
        let table: [(&[(&str, &str)], bool); 8] = [
            (&[], false),
            (&[("PMI_SIZE", "4"), ("MPI_LOCALNRANKS", "4")], true),
            (&[("PMI_SIZE", "8"), ("MPI_LOCALNRANKS", "4")], false),
            (&[("PMI_SIZE", "4")], false),
            (
                &[
                    ("OMPI_COMM_WORLD_SIZE", "2"),
                    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                ],
                true,
            ),
            (&[("SLURM_STEP_NUM_NODES", "1")], true),
            (&[("SLURM_STEP_NUM_NODES", "2")], false),
            // A launcher inside of a step of one host, and of one that spans several.
            (
                &[
                    ("SLURM_STEP_NUM_NODES", "1"),
                    ("PMI_SIZE", "8"),
                    ("MPI_LOCALNRANKS", "4"),
                ],
                false,
            ),
        ];
        for (set, expected) in table {
            assert_eq!(is_alone(set), expected, "{set:?}");
        }
    }
}
