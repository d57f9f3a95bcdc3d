"""Replaces the AUTH token of a Redis replication group, in the steps that Secrets Manager calls.

Redis accepts two tokens at a time: ROTATE adds the new one and drops the older of the two. So
the token that edges still use stays valid until the rotation after this one.
"""

import os
import time

import boto3

secrets = boto3.client("secretsmanager")
elasticache = boto3.client("elasticache")


def handler(event, context):
    secret, version, step = event["SecretId"], event["ClientRequestToken"], event["Step"]
    stages = secrets.describe_secret(SecretId=secret)["VersionIdsToStages"].get(version, [])
    if "AWSCURRENT" in stages:
        return  # a repeated step
    if "AWSPENDING" not in stages:
        raise ValueError(f"version {version} of {secret} is not to be rotated in")
    {"createSecret": create, "setSecret": put, "testSecret": check, "finishSecret": finish}[step](secret, version)


def create(secret, version):
    """Makes the new token, unless an earlier attempt did."""
    try:
        pending(secret, version)
    except secrets.exceptions.ResourceNotFoundException:
        token = secrets.get_random_password(PasswordLength=64, ExcludePunctuation=True)["RandomPassword"]
        secrets.put_secret_value(
            SecretId=secret, ClientRequestToken=version, SecretString=token, VersionStages=["AWSPENDING"]
        )


def put(secret, version):
    """Adds the new token to those that Redis accepts, once: a second time would drop the one that edges use."""
    stages = secrets.describe_secret(SecretId=secret)["VersionIdsToStages"]
    before = next((v for v, names in stages.items() if "PUT" in names), None)
    if before == version:
        return
    group = os.environ["REPLICATION_GROUP"]
    available(group)
    elasticache.modify_replication_group(
        ReplicationGroupId=group,
        AuthToken=pending(secret, version),
        AuthTokenUpdateStrategy="ROTATE",
        ApplyImmediately=True,
    )
    secrets.update_secret_version_stage(
        SecretId=secret, VersionStage="PUT", MoveToVersionId=version, **({"RemoveFromVersionId": before} if before else {})
    )


def check(secret, version):
    """The change is done when the group is available again and none is pending."""
    available(os.environ["REPLICATION_GROUP"])


def finish(secret, version):
    """Makes edges fetch the new token."""
    stages = secrets.describe_secret(SecretId=secret)["VersionIdsToStages"]
    current = next(v for v, names in stages.items() if "AWSCURRENT" in names)
    secrets.update_secret_version_stage(
        SecretId=secret, VersionStage="AWSCURRENT", MoveToVersionId=version, RemoveFromVersionId=current
    )


def pending(secret, version):
    return secrets.get_secret_value(SecretId=secret, VersionId=version, VersionStage="AWSPENDING")["SecretString"]


def available(group, tries=80, pause=10):
    """Waits up to 13 minutes: the function itself ends after 15."""
    for _ in range(tries):
        found = elasticache.describe_replication_groups(ReplicationGroupId=group)["ReplicationGroups"][0]
        changing = found.get("PendingModifiedValues", {}).get("AuthTokenStatus")
        if found["Status"] == "available" and not changing:
            return
        time.sleep(pause)
    raise TimeoutError(f"{group} has been {found['Status']} for too long")
