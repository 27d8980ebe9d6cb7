"""Small programs over unmodified packages: what each prints is the same on MariaDB and on Headrace.

``python programs.py NAME PORT``, by a Python that has the packages; the database ``test`` is empty.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import Any


def django(port: int) -> None:
    """``migrate`` of all contrib apps that need no GIS, and what an application does first."""
    import pymysql

    pymysql.version_info = (2, 2, 7, "final", 0)
    pymysql.install_as_MySQLdb()
    import django as package
    from django.conf import settings

    apps = ("admin", "auth", "contenttypes", "sessions", "messages", "flatpages", "redirects", "sites")
    given = {"ENGINE": "django.db.backends.mysql", "HOST": "127.0.0.1", "PORT": port, "USER": "root", "NAME": "test"}
    settings.configure(
        SECRET_KEY="x",
        USE_TZ=True,
        DEFAULT_AUTO_FIELD="django.db.models.AutoField",
        INSTALLED_APPS=[f"django.contrib.{app}" for app in apps],
        DATABASES={"default": given},
    )
    package.setup()
    from django.contrib.auth.models import Permission, User
    from django.contrib.sites.models import Site
    from django.core.management import call_command
    from django.db import IntegrityError, transaction

    call_command("migrate", verbosity=1)
    call_command("migrate", verbosity=1)
    call_command("makemigrations", check=True, dry_run=True)
    ann = User.objects.create_user("ann", "ann@example.com", "secret")
    for name in ("ann", "bob"):
        try:
            with transaction.atomic():
                User.objects.create_user(name)
                raise ValueError
        except (IntegrityError, ValueError) as error:
            print(type(error).__name__)
    ann.user_permissions.set(Permission.objects.filter(codename__startswith="view_"))
    print(ann.pk, User.objects.count(), ann.user_permissions.count(), ann.has_perm("auth.view_user"))
    print(list(Permission.objects.order_by("content_type__app_label", "codename").values_list("codename", flat=True)))
    print(list(Site.objects.values()))
    print(User.objects.filter(user_permissions__isnull=False).distinct().update(first_name="Ann"))
    print(User.objects.exclude(first_name="").delete())


def peewee(port: int) -> None:
    import peewee as package
    from playhouse.reflection import Introspector

    db = package.MySQLDatabase("test", host="127.0.0.1", port=port, user="root")

    class Author(package.Model):
        name = package.CharField(unique=True)

        class Meta:
            database = db

    class Story(package.Model):
        author = package.ForeignKeyField(Author, backref="stories")
        title = package.TextField()
        score = package.IntegerField(default=0, index=True)

        class Meta:
            database = db

    db.create_tables([Author, Story])
    with db.atomic():
        ann = Author.create(name="ann")
        Story.insert_many([{"author": ann, "title": f"story {n}", "score": n} for n in range(5)]).execute()
    Story.update(score=Story.score + 10).where(Story.title.contains("3")).execute()
    counted = Author.select(Author.name, package.fn.COUNT(Story.id).alias("n")).join(Story).group_by(Author.name)
    print([(each.name, each.n) for each in counted])
    print([(each.title, each.score, each.author.name) for each in ann.stories.order_by(Story.score.desc()).limit(2)])
    print(sorted(db.get_tables()), [column.name for column in db.get_columns("story")])
    print({"story_author_id", "story_score"} <= {index.name for index in db.get_indexes("story")})
    print([(key.name, key.column, key.dest_table, key.dest_column) for key in db.get_foreign_keys("story")])
    print(
        {name: sorted(model._meta.fields) for name, model in Introspector.from_database(db).generate_models().items()}
    )
    db.drop_tables([Story, Author])


def pandas(port: int) -> None:
    import pandas as package
    import sqlalchemy

    engine = sqlalchemy.create_engine(f"mysql+pymysql://root@127.0.0.1:{port}/test?charset=utf8mb4")
    days = package.date_range("2026-01-01", periods=3)
    frame = package.DataFrame({"n": [1, 2, 3], "x": [0.5, None, 2.5], "word": ["a", "b", None], "day": days})
    for how in ("fail", "append", "replace"):
        print(frame.to_sql("frames", engine, if_exists=how, index=False, method="multi"))
    print(package.read_sql_table("frames", engine).to_string())
    print(package.read_sql("SELECT word, MAX(n) AS s FROM frames GROUP BY word ORDER BY s", engine).to_string())
    with engine.begin() as connection:
        connection.exec_driver_sql("DROP TABLE frames")


def sqlmodel(port: int) -> None:
    import subprocess

    import sqlmodel as package

    class Hero(package.SQLModel, table=True):
        id: int | None = package.Field(default=None, primary_key=True)
        name: str = package.Field(index=True, max_length=40)
        age: int | None = None

    url = f"mysql+pymysql://root@127.0.0.1:{port}/test?charset=utf8mb4"
    engine = package.create_engine(url)
    package.SQLModel.metadata.create_all(engine)
    with package.Session(engine) as session:
        session.add_all([Hero(name="ann", age=3), Hero(name="bob")])
        session.commit()
        print([(hero.id, hero.name) for hero in session.exec(package.select(Hero).where(Hero.age == None))])  # noqa: E711
        print(session.exec(package.select(package.func.count()).select_from(Hero)).one())
    made = subprocess.run([sys.executable, "-m", "sqlacodegen", url], capture_output=True, text=True, check=True).stdout
    print(re.findall(r"(\w+): Mapped\[([^=]*)\] =", made))
    package.SQLModel.metadata.drop_all(engine)


PROGRAMS: dict[str, Callable[[int], Any]] = {each.__name__: each for each in (django, peewee, pandas, sqlmodel)}

if __name__ == "__main__":
    PROGRAMS[sys.argv[1]](int(sys.argv[2]))
