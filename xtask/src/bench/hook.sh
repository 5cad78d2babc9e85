#!/bin/sh
# What a hook written for a shell does: an id by sha256sum, the event by jq, the post by curl.
set -eu
finished=$(date -u +%Y-%m-%dT%H:%M:%S.%3NZ)
source="/platform-cicd/$APP_NAMESPACE/$CLUSTER-$APP_NAME-$ENV-outcome"
type=dev.cdevents.environment.deployed.0.1.0
id=$(printf '%s' "$source:$type:$JOB_NAME" | sha256sum | cut -c1-20)
jq -cn --arg id "$id" --arg source "$source" --arg type "$type" --arg finished "$finished" \
  --arg ns "$APP_NAMESPACE" --arg app "$APP_NAME" --arg env "$ENV" --arg cluster "$CLUSTER" --arg chain "$CHAIN_ID" \
  --arg url "$GIT_URL" --arg revision "$GIT_REVISION" --arg gitops "$GITOPS_REVISION" --arg flow "$FLOW_START_TIME" \
  --arg config "$(printf '%s' "$CONFIG_JSON_B64" | base64 -d)" \
  '{context: {version: "0.4.1", id: $id, source: $source, type: $type, timestamp: $finished, chainId: $chain},
    subject: {id: $source, source: $source, type: "environment", content: {appNamespace: $ns, appName: $app,
      env: $env, cluster: $cluster, phase: "Succeeded", outcome: "success", status: "Succeeded", revision: $gitops,
      gitUrl: $url, gitRevision: $revision, flowStartTime: $flow, finishedAt: $finished, prUrl: "",
      prCreatedAt: "", configJson: $config}},
    customData: {platform: {traceparent: "", flow_start_time: $flow, config_json: "{}"}},
    customDataContentType: "application/json"}' |
  curl -sS --fail-with-body --max-time 40 --cacert "$RELAY_CA_FILE" -o /dev/null \
    -H "Authorization: Bearer $(cat "$RELAY_TOKEN_FILE")" -H "Content-Type: application/cloudevents+json" \
    --data-binary @- "$RELAY_URL"
