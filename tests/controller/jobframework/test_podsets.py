"""What a pod set asks for, as its Workload says it."""

from controller.jobframework.podsets import JobPodSet
from controller.jobframework.raw import Json


def test_of_environment_variables_of_one_name_the_last_counts() -> None:
    repeated = [{"name": "A", "value": "1"}, {"name": "B"}, {"name": "A", "value": "2"}]
    template: Json = {"spec": {"containers": [{"name": "c", "env": repeated}], "initContainers": [{"name": "i"}]}}
    body = JobPodSet(name="main", count=1, template=template).as_json()
    assert body["template"]["spec"]["containers"][0]["env"] == [{"name": "B"}, {"name": "A", "value": "2"}]
    assert template["spec"]["containers"][0]["env"] is repeated
