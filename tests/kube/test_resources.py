import pytest

from app.kube.errors import NotFound
from app.kube.resources import CONTROLLERREVISIONS, NAMESPACES, PODS, ObjectKey, Resource

SETS = Resource("apps.kruise.io", "v1beta1", "sidecarsets", "SidecarSet", namespaced=False)


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, ("shop", "web-0"), "/api/v1/namespaces/shop/pods/web-0"),
        (PODS, ("shop", "web-0", "status"), "/api/v1/namespaces/shop/pods/web-0/status"),
        (PODS, ("shop",), "/api/v1/namespaces/shop/pods"),
        (PODS, (), "/api/v1/pods"),
        (NAMESPACES, ("", "shop"), "/api/v1/namespaces/shop"),
        (CONTROLLERREVISIONS, ("shop", "a"), "/apis/apps/v1/namespaces/shop/controllerrevisions/a"),
        (SETS, ("", "log agent?x"), "/apis/apps.kruise.io/v1beta1/sidecarsets/log%20agent%3Fx"),
    ],
)
def test_paths_are_those_of_the_api(resource, arguments, path):
    assert resource.path(*arguments) == path


@pytest.mark.parametrize(
    ("resource", "arguments", "message"),
    [
        (PODS, ("", "web-0"), "Pod web-0: the kind is namespaced, but no namespace was given"),
        (SETS, ("shop", "x"), "SidecarSet x: the kind is cluster-scoped, but namespace 'shop' was given"),
        (PODS, ("shop", "", "status"), "Pod: subresource 'status' requires the name of an object"),
    ],
)
def test_a_path_to_other_objects_is_refused(resource, arguments, message):
    with pytest.raises(ValueError, match="^" + message + "$"):
        resource.path(*arguments)


@pytest.mark.parametrize("name", [".", "..", "web-0/log", "../../kube-system/pods/x", "web-0%2Flog"])
def test_impossible_names_find_nothing(name):
    for arguments in (("shop", name), (name, "web-0"), (name,)):
        with pytest.raises(NotFound, match="no object can have this name"):
            PODS.path(*arguments)


def test_api_versions_and_keys_match_manifests():
    assert PODS.api_version == "v1"
    assert CONTROLLERREVISIONS.api_version == "apps/v1"
    assert str(ObjectKey("shop", "web-0")) == "shop/web-0"
    assert str(ObjectKey("", "log-agent")) == "log-agent"
