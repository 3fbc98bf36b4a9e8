//! Variables by which launchers of parallel programs describe the job to its processes.

/// Returns whether all processes of this program's job run on this host, by the launcher's
/// variables. `value` returns the value of a variable of the environment.
pub(super) fn runs_on_one_host(value: &dyn Fn(&str) -> Option<String>) -> bool {
    let number = |name: &str| value(name)?.trim().parse::<u64>().ok();
    let mut counts = PROCESSES.iter();
    let counted = counts.find_map(|(total, local)| Some((number(total)?, number(local)?)));
    match counted {
        Some((total, local)) => total == local,
        None => HOSTS.iter().find_map(|name| number(name)) == Some(1),
    }
}

/// The variables with the number of processes of the job and the number of those on this host, of
/// Open MPI's launchers and of Hydra, which starts programs of MPICH and Intel MPI.
const PROCESSES: [(&str, &str); 2] = [
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
];

/// The variables with the number of hosts of the job, of Slurm's `srun` and of Flux.
const HOSTS: [&str; 2] = ["SLURM_STEP_NUM_NODES", "FLUX_JOB_NNODES"];

#[cfg(test)]
mod tests {
    use super::*;

    fn runs_on_one_host_with(set: &[(&str, &str)]) -> bool {
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
            // A launcher within a Slurm step of one host, for a job on several hosts.
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
            assert_eq!(runs_on_one_host_with(set), expected, "{set:?}");
        }
    }
}
