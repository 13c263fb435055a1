"""Puts clusters into a played EC2 and reads them back: ec2.py URL openshift|eks|end|show [NAME]. Answers in JSON."""

import json
import sys

import boto3

ZONES = ["eu-west-1a", "eu-west-1b"]


def tags(**more):
    return [{"Key": key, "Value": value} for key, value in more.items()]


def network(ec2, name, owned):
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    ec2.create_tags(Resources=[vpc], Tags=[*tags(Name=f"{name}-vpc"), *owned])
    subnets = []
    for number, zone in enumerate(ZONES):
        subnet = ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
        ec2.create_tags(Resources=[subnet], Tags=[*tags(Name=f"{name}-public-{zone}"), *owned])
        subnets.append(subnet)
    return vpc, subnets


def group(ec2, vpc, name, owned):
    made = ec2.create_security_group(GroupName=name, Description=name, VpcId=vpc)["GroupId"]
    ec2.create_tags(Resources=[made], Tags=[*tags(Name=name), *owned])
    own = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "IpRanges": [{"CidrIp": "10.0.0.0/8", "Description": "own"}]}
    ec2.authorize_security_group_ingress(GroupId=made, IpPermissions=[own])
    return made


def machines(ec2, subnets, groups, name, owned, count):
    made = []
    for number in range(count):
        where = number % len(subnets)
        run = ec2.run_instances(
            ImageId="ami-12c6146b", MinCount=1, MaxCount=1, InstanceType="m5.large", SubnetId=subnets[where], SecurityGroupIds=groups
        )
        machine = run["Instances"][0]["InstanceId"]
        ec2.create_tags(Resources=[machine], Tags=[*tags(Name=f"{name}-worker-{number}"), *owned])
        made.append({"zone": ZONES[where], "id": machine})
    return made


def openshift(ec2, name):
    owned = tags(**{f"kubernetes.io/cluster/{name}": "owned"})
    vpc, subnets = network(ec2, name, owned)
    workers = group(ec2, vpc, f"{name}-worker-sg", owned)
    group(ec2, vpc, f"{name}-master-sg", owned)
    return machines(ec2, subnets, [workers], name, owned, 2)


def eks(ec2, name):
    owned = tags(**{f"kubernetes.io/cluster/{name}": "owned"})
    vpc, subnets = network(ec2, name, [])
    nodes = group(ec2, vpc, f"eks-cluster-sg-{name}-1", owned)
    return machines(ec2, subnets, [nodes], name, owned, 3)


def end(ec2, machine):
    ec2.terminate_instances(InstanceIds=[machine])
    return []


def show(ec2, _):
    def permission(one):
        sources = [pair["GroupId"] for pair in one.get("UserIdGroupPairs", [])]
        sources += [network["CidrIp"] for network in one.get("IpRanges", [])]
        sources += [network["CidrIpv6"] for network in one.get("Ipv6Ranges", [])]
        ports = [one.get("FromPort"), one.get("ToPort")] if one["IpProtocol"] in ("tcp", "udp") else []
        return [[one["IpProtocol"], ports, source] for source in sources]

    def tag_map(resource):
        return {tag["Key"]: tag["Value"] for tag in resource.get("Tags", [])}

    groups = {}
    for found in ec2.describe_security_groups()["SecurityGroups"]:
        permissions = [flat for one in found["IpPermissions"] for flat in permission(one)]
        groups[found["GroupName"] + "@" + found["VpcId"]] = {
            "id": found["GroupId"], "tags": tag_map(found), "permissions": sorted(permissions, key=json.dumps)
        }
    instances = {}
    for found in [one for many in ec2.describe_instances()["Reservations"] for one in many["Instances"]]:
        if found["State"]["Name"] == "terminated":
            continue
        interface = found["NetworkInterfaces"][0]
        instances[found["InstanceId"]] = {
            "groups": sorted(one["GroupName"] for one in interface["Groups"]),
            "check": interface["SourceDestCheck"],
            "tags": tag_map(found),
        }
    subnets = {one["SubnetId"]: tag_map(one) for one in ec2.describe_subnets()["Subnets"]}
    return {"groups": groups, "instances": instances, "subnets": subnets}


if __name__ == "__main__":
    url, verb = sys.argv[1:3]
    client = boto3.client(
        "ec2", region_name="eu-west-1", endpoint_url=url, aws_access_key_id="setup", aws_secret_access_key="setup"
    )
    verbs = {"openshift": openshift, "eks": eks, "end": end, "show": show}
    json.dump(verbs[verb](client, sys.argv[3] if len(sys.argv) > 3 else ""), sys.stdout)
