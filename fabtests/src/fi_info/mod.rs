//! `fi_info`: shows the communication interfaces that a registry finds (fi_info(1)).
//!
//! Options and text are libfabric's, field by field; `--json` and `--explain` are Selvedge's own.

mod args;
mod env;
mod explain;
mod json;
mod text;

pub use args::{Args, Usage, parse};
pub use text::{long, short};

use selvedge::info::Version;
use selvedge::{Errno, Error, Hints, Info, InfoFlags, Registry};
use serde_json::json;

/// The tool's output and exit code.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Text for the standard output.
    pub text: String,
    /// Text for the standard error stream.
    pub errors: String,
    /// The exit code: 0, or the number of the error.
    pub code: u8,
}

/// Executes the options.
pub fn run(args: &Args, registry: &Registry) -> Output {
    let result = if args.version {
        Ok(version_text())
    } else if args.env || args.getenv.is_some() {
        Ok(env::show(
            registry,
            args.getenv.as_deref().unwrap_or(""),
            args.json,
        ))
    } else if args.list {
        list(args, registry)
    } else if args.explain {
        return explain(args, registry);
    } else {
        infos(args, registry)
    };
    result.map_or_else(|error| report_error(args, &error), Output::success)
}

impl Output {
    fn success(text: String) -> Self {
        Self {
            text,
            ..Self::default()
        }
    }
}

fn version_text() -> String {
    let version = env!("CARGO_PKG_VERSION");
    let api = Version::API;
    format!("fi_info: {version}\nselvedge: {version}\nlibfabric api: {api}\n")
}

fn list(args: &Args, registry: &Registry) -> Result<String, Error> {
    let flags = InfoFlags::PROV_ATTR_ONLY;
    let found = registry.getinfo(Version::API, None, None, flags, &Hints::new())?;
    if args.json {
        let providers: Vec<_> = found.iter().map(json::provider).collect();
        return Ok(json::format(&json!({ "providers": providers })));
    }
    Ok(found.iter().map(text::provider).collect())
}

fn infos(args: &Args, registry: &Registry) -> Result<String, Error> {
    let query = args.query()?;
    let mut found = registry.getinfo(
        Version::API,
        query.node.as_deref(),
        query.service.as_deref(),
        query.flags,
        &query.hints,
    )?;
    if let Some(part) = &args.info {
        found.retain(|info| long(info).contains(part.as_str()));
    }
    if args.json {
        let infos: Vec<_> = found.iter().map(json::info).collect();
        return Ok(json::format(&json!({ "infos": infos })));
    }
    let format_info: fn(&Info) -> String = if args.verbose || args.info.is_some() {
        long
    } else {
        short
    };
    Ok(found.iter().map(format_info).collect())
}

fn explain(args: &Args, registry: &Registry) -> Output {
    let explanations = args.query().and_then(|query| {
        registry.explain(
            Version::API,
            query.node.as_deref(),
            query.service.as_deref(),
            query.flags,
            &query.hints,
        )
    });
    let explanations = match explanations {
        Ok(explanations) => explanations,
        Err(error) => return report_error(args, &error),
    };
    let is_any_taken = explanations.iter().any(selvedge::Explanation::is_taken);
    let unknown = registry.params().unknown();
    Output {
        text: if args.json {
            json::format(&explain::json(&explanations, &unknown))
        } else {
            explain::text(&explanations, &unknown)
        },
        errors: String::new(),
        code: if is_any_taken {
            0
        } else {
            exit_code(Errno::NoData)
        },
    }
}

fn report_error(args: &Args, error: &Error) -> Output {
    let (text, errors) = if args.json {
        let errno = error.errno();
        let error =
            json!({ "errno": errno.as_raw(), "name": errno.text(), "text": error.message() });
        (json::format(&json!({ "error": error })), String::new())
    } else {
        (String::new(), format!("fi_info: {error}\n"))
    };
    Output {
        text,
        errors,
        code: exit_code(error.errno()),
    }
}

/// Returns the error's number where it fits, as in libfabric's tool.
fn exit_code(errno: Errno) -> u8 {
    u8::try_from(errno.as_raw()).unwrap_or(u8::MAX)
}

#[cfg(test)]
mod tests;
