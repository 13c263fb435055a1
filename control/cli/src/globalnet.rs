//! What upstream's operator gets when it starts this image as its Globalnet: that the gateway does that work.

use std::ffi::OsStr;
use std::path::Path;

use trieste_deploy::objects::names;

/// The names that the image gives to this program besides its own.
const NAMES: [&str; 2] = [names::GLOBALNET, "submariner-globalnet.sh"];

/// The message for whoever started this program by one of Globalnet's names; `None` for everybody else.
pub(crate) fn refusal(program: Option<&OsStr>) -> Option<String> {
    let name = Path::new(program?).file_name()?.to_str()?;
    NAMES.contains(&name).then(|| {
        format!(
            "error: {name}: Trieste has no Globalnet process: its gateway translates by itself in a cluster with a global CIDR, \
             and a second translation beside it would break connections. If this cluster's gateways are Trieste's, this \
             pod has nothing to do. If they are upstream's, keep upstream's image for this one container \
             (spec.imageOverrides: {{submariner-globalnet: IMAGE}} in the Submariner object)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_globalnets_names_are_refused_and_the_message_says_what_to_do() {
        for name in ["/usr/local/bin/submariner-globalnet.sh", "submariner-globalnet"] {
            let message = refusal(Some(OsStr::new(name))).unwrap();
            assert!(message.contains("no Globalnet") && message.contains("spec.imageOverrides"), "{message}");
        }
        for name in ["trieste", "/usr/local/bin/trieste", "submariner-globalnet/trieste", ""] {
            assert_eq!(refusal(Some(OsStr::new(name))), None, "{name}");
        }
        assert_eq!(refusal(None), None);
    }
}
