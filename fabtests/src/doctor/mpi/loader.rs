//! The dynamic loader's trace of a process (`LD_DEBUG=libs`): the rule by which it found a library.

use std::path::Path;

/// Returns the rule by which the loader found the library that is mapped as `mapped`, or `None` if
/// the trace has no search that led to the file: a program or a library has then named its path.
pub(super) fn rule(trace: &str, mapped: &Path) -> Option<String> {
    let (mut rule, mut found) = (String::new(), None);
    for line in trace.lines() {
        // The number of the process, and a tab, precede the text.
        let text = line.split_once(':').map_or(line, |(_, text)| text).trim();
        if let Some(search) = text.strip_prefix("search path=") {
            rule = reason(search);
        } else if let Some(cache) = text.strip_prefix("search cache=") {
            rule = cache.to_owned();
        } else if let Some(file) = text.strip_prefix("trying file=")
            && leads_to(Path::new(file), mapped)
        {
            found = Some(rule.clone());
        }
    }
    found
}

/// The text in the last parentheses of a search path, without the word that introduces a file.
fn reason(search: &str) -> String {
    let inner = search.rsplit_once('(').map_or("", |(_, inner)| inner);
    inner.trim_end_matches(')').replace(" from file ", " of ")
}

fn leads_to(tried: &Path, mapped: &Path) -> bool {
    tried.file_name().is_some() && tried.canonicalize().is_ok_and(|file| file == mapped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_is_that_of_the_last_search_before_the_file() {
        let file = Path::new("/proc/self/exe").canonicalize().unwrap();
        let file = file.display();
        let trace = |rule: &str| {
            format!(
                "       12:\tfind library=libfabric.so.1 [0]; searching\n       \
                 12:\t search path=/none/a:/none/b\t\t(RUNPATH from file /opt/libmpi.so.12)\n       \
                 12:\t  trying file=/none/a/libfabric.so.1\n       12:\t {rule}\n       \
                 12:\t  trying file={file}\n       12:\n"
            )
        };
        let mapped = Path::new("/proc/self/exe").canonicalize().unwrap();
        let rules = [
            ("search path=/x\t\t(LD_LIBRARY_PATH)", "LD_LIBRARY_PATH"),
            ("search cache=/etc/ld.so.cache", "/etc/ld.so.cache"),
            (
                "search path=/y\t\t(RUNPATH from file /opt/libmpi.so.12)",
                "RUNPATH of /opt/libmpi.so.12",
            ),
        ];
        for (line, expected) in rules {
            assert_eq!(rule(&trace(line), &mapped).as_deref(), Some(expected));
        }
        assert_eq!(rule(&trace(rules[0].0), Path::new("/bin/none")), None);
    }
}
