"""What Django's own test runner is told: two databases of one server, and to note what becomes of each test."""

import os

DATABASES = {
    name: {
        "ENGINE": "django.db.backends.mysql",
        "HOST": "127.0.0.1",
        "PORT": int(os.environ["MYSQL_PORT"]),
        "USER": "root",
        "NAME": name,
        "TEST": {"CHARSET": "utf8mb4", "COLLATION": "utf8mb4_general_ci"},
    }
    for name in ("default", "other")
}
SECRET_KEY = "of the tests"
USE_TZ = False
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
TEST_RUNNER = "django_recorder.Recorder"
