//! The library run as in a pod.

use std::{fs, path::Path, time::Instant};

use transponder_hook::{App, console::Console, vars::Vars};

use super::{Hook, Server, TOKEN};

/// A pod without a token file: an API server, and the ServiceAccount's files. The library is run, since the program
/// reads the account where the kubelet puts it and nowhere else.
pub(crate) struct Pod {
    pub(crate) hook: Hook,
}

impl Pod {
    pub(crate) fn new(relay: &Server, api: &Server) -> Self {
        let mut hook = Hook::to(&relay.url("/outcome/kind-prod"));
        hook.unset("RELAY_TOKEN_FILE");
        hook.set("KUBERNETES_SERVICE_HOST", "127.0.0.1");
        hook.set("KUBERNETES_SERVICE_PORT", &api.address().port().to_string());
        fs::create_dir(hook.path("account")).unwrap();
        hook.file("account/token", "account-token\n");
        hook.file("account/ca.crt", api.ca().unwrap());
        Self { hook }
    }

    pub(crate) fn run(&self) -> (u8, String) {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let vars: Vars = self.hook.vars().collect();
        let app = App::build(&vars, Path::new(&self.hook.path("account")), Instant::now());
        let code = app.run(&mut Console::new(&mut out, &mut err));
        let said = String::from_utf8([out, err].concat()).unwrap();
        assert!(!said.contains(TOKEN) && !said.contains("account-token"), "{said}");
        (code, said)
    }
}
