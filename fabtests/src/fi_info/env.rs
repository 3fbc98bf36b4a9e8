//! Shows the environment parameters: the type, default, value and meaning of each.

use selvedge::Registry;
use selvedge::param::{CORE, Params, Spec};
use serde_json::{Value, json};

/// Shows the parameters whose names contain `part`, and all variables that no parameter declares.
/// The layout is that of libfabric's fi_info, or JSON.
pub(super) fn show(registry: &Registry, part: &str, as_json: bool) -> String {
    let params = registry.params();
    let matching = || declared(registry).filter(|(_, spec)| spec.name.contains(part));
    if as_json {
        let listed: Vec<_> = matching()
            .map(|(owner, spec)| json(&params, owner, spec))
            .collect();
        let unknown: Vec<_> = params.unknown().iter().map(unknown_json).collect();
        return super::json::format(&json!({ "params": listed, "unknown": unknown }));
    }
    let mut text: String = matching()
        .map(|(owner, spec)| text(&params, owner, spec))
        .collect();
    for unknown in params.unknown() {
        text += &format!("# {unknown}\n");
    }
    text
}

pub(super) fn unknown_json(unknown: &selvedge::param::Unknown) -> Value {
    json!({ "name": unknown.name, "value": unknown.value, "nearest": unknown.nearest })
}

/// Each declared parameter with the name of its provider, or `None` for a parameter of the core.
fn declared(registry: &Registry) -> impl Iterator<Item = (Option<&'static str>, &'static Spec)> {
    let core = CORE.iter().map(|spec| (None, spec));
    let providers = registry.providers().iter().flat_map(|provider| {
        let name = provider.name();
        provider.params().iter().map(move |spec| (Some(name), spec))
    });
    core.chain(providers)
}

fn text(params: &Params, owner: Option<&str>, spec: &Spec) -> String {
    let owner = owner.map_or_else(String::new, |name| format!("{name}: "));
    let default = spec.kind.default_text();
    let default = match default.as_str() {
        "" => default,
        value => format!(" (default: {value})"),
    };
    let mut text = format!("# {}: {}\n", spec.name, spec.kind.type_name());
    text += &format!("# {owner}{}{default}\n", spec.help);
    if let Some(value) = params.raw(spec.name) {
        text += &format!("{}={value}\n", spec.name);
    }
    if let Some(error) = bad_value(params, spec) {
        text += &format!("# error: {error}\n");
    }
    text + "\n"
}

fn json(params: &Params, owner: Option<&str>, spec: &Spec) -> Value {
    let default = spec.kind.default_text();
    json!({
        "name": spec.name,
        "provider": owner,
        "type": spec.kind.type_name(),
        "accepts": spec.kind.to_string(),
        "default": default,
        "value": params.raw(spec.name).unwrap_or(&default),
        "set": params.raw(spec.name).is_some(),
        "error": bad_value(params, spec),
        "help": spec.help,
    })
}

/// The text of the error, if the parameter's value is not acceptable.
fn bad_value(params: &Params, spec: &Spec) -> Option<String> {
    params
        .check_one(spec)
        .err()
        .map(|error| error.message().to_owned())
}
