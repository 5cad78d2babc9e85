//! Reading a receipt.

use serde_json::Value;
use transponder_core::{Target, TargetState};

/// How far an event has come with each of its targets.
///
/// A target that this version does not know is left out.
#[must_use]
pub fn targets(receipt: &Value) -> Vec<(Target, TargetState)> {
    let state = |target: Target| {
        let text = receipt["targets"][target.as_str()]["state"].as_str()?;
        Some((target, TargetState::parse(text)?))
    };
    Target::ALL.into_iter().filter_map(state).collect()
}

/// Whether nothing more will happen by itself: every target has the event, was overtaken, or was given up.
#[must_use]
pub fn is_complete(receipt: &Value) -> bool {
    let targets = targets(receipt);
    !targets.is_empty() && targets.iter().all(|(_, state)| !state.is_open())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_receipt_is_complete_when_every_target_is_final_or_dead() {
        let receipt = |broker: &str, dora: &str| json!({ "targets": { "broker": { "state": broker }, "dora": { "state": dora } } });
        assert!(is_complete(&receipt("delivered", "replaced")));
        assert!(is_complete(&receipt("dead", "delivered")));
        assert!(!is_complete(&receipt("delivered", "waiting")));
        assert!(!is_complete(&json!({})));
        assert_eq!(targets(&receipt("stored", "?")), [(Target::Broker, TargetState::Stored)]);
    }
}
