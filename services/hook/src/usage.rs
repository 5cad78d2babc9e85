//! The command line. The hook takes none: all comes from the environment, so an argument asks for help or is a mistake.

use std::ffi::OsString;

use crate::error::Problem;

/// Name and version.
pub const VERSION: &str = concat!("transponder-hook ", env!("CARGO_PKG_VERSION"), "\n");

/// What `--help` shows (DESIGN §3).
pub const USAGE: &str = concat!(
    "transponder-hook ",
    env!("CARGO_PKG_VERSION"),
    "
Reports one phase of one sync to the relay. Runs in a hook Job of Argo CD and takes no arguments.

Required variables:
  RELAY_URL            where to post: https://<relay>/outcome/<cluster>
  CLUSTER              name under which this cluster is registered
  APP_NAMESPACE        CI namespace of the app
  APP_NAME             the app
  ENV                  the environment
  PHASE                Syncing (PreSync), Succeeded (PostSync) or Failed (SyncFail)
  POD_NAMESPACE        namespace of this pod, by the downward API

Optional variables (an empty value counts as unset):
  CHAIN_ID             correlator of the flow
  GIT_URL              URL of the app's repository
  GIT_REVISION         revision of the app's repository
  GITOPS_REVISION      revision of the GitOps repository
  FLOW_START_TIME      when the flow began, RFC 3339
  CONFIG_JSON_B64      base64 of a JSON object of at most 64 KiB
  JOB_NAME             label batch.kubernetes.io/job-name, by the downward API
  JOB_UID              label batch.kubernetes.io/controller-uid, by the downward API
  RELAY_TOKEN_FILE     the mounted token; else it is read from Secret platform-outcome-relay-token
  RELAY_CA_FILE        CAs of the relay; else the Secret's ca.crt, else the system's
  HOOK_DEADLINE        10s, 500ms, 1m, at most 60m; 10s for Syncing, 40s else
  HOOK_FAILURE_POLICY  ignore (default): exit 0 whatever happened; fail: 1 not delivered, 2 wrong configuration
"
);

/// What the arguments ask for instead of a report: a text to show, or they are at fault. `None` when there are none.
///
/// # Errors
/// Names the first argument that means nothing.
pub fn asked(args: impl IntoIterator<Item = OsString>) -> Result<Option<&'static str>, Problem> {
    let mut args = args.into_iter().peekable();
    let Some(first) = args.peek().map(|arg| arg.display().to_string()) else {
        return Ok(None);
    };
    let texts = [(["--help", "-h"], USAGE), (["--version", "-V"], VERSION)];
    let text =
        args.find_map(|arg| texts.into_iter().find(|(names, _)| names.iter().any(|name| arg == *name)));
    match text {
        Some((_, text)) => Ok(Some(text)),
        None => Err(Problem::new(
            format!("the argument '{first}'"),
            "means nothing: the hook reads its environment, and --help lists the variables",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(args: &[&str]) -> Result<Option<&'static str>, Problem> {
        asked(args.iter().map(OsString::from))
    }

    #[test]
    fn help_and_version_are_texts_and_anything_else_is_named() {
        assert_eq!(of(&[]), Ok(None));
        for (args, text) in [
            (&["--help"][..], USAGE),
            (&["-h"], USAGE),
            (&["report", "--help"], USAGE),
            (&["--version"], VERSION),
            (&["-V"], VERSION),
        ] {
            assert_eq!(of(args), Ok(Some(text)), "{args:?}");
        }
        for args in [&["--halp", "b"][..], &["--halp"]] {
            assert_eq!(of(args).unwrap_err().variable, "the argument '--halp'");
        }
        assert_eq!(of(&[""]).unwrap_err().variable, "the argument ''");
    }
}
