"""Which automatic views stay, and which go for others."""

from __future__ import annotations

from controller.statements.shapes import LATELY, OFTENER, TABLE_VIEWS, AskedShapes, Variant

POSTS = frozenset(("posts",))


def asked(shapes: AskedShapes, name: str) -> Variant:
    return shapes.asked(f"shape of {name}", name, f"SELECT {name} FROM posts", reusable=True)[1]


def test_shapes_that_are_asked_in_turns_do_not_drive_one_another_out() -> None:
    shapes = AskedShapes()
    made = 0
    for number in range(10 * LATELY):
        name = f"adhoc_{number % 200}"
        variant = asked(shapes, name)
        if variant.view is None and (going := shapes.going(variant, POSTS)) is not None:
            made += 1
            assert not going
            shapes.keep(name, variant, POSTS)
    assert made == len(shapes.kept) == TABLE_VIEWS
    waiting = asked(shapes, "adhoc_199")
    assert shapes.going(waiting, POSTS) is None
    assert 'of the table "posts"' in waiting.why(shapes.mode, "")
    assert shapes.going(waiting, frozenset(("comments",))) == [], "other tables have room"


def test_one_that_is_asked_much_more_often_takes_the_place_of_the_least_asked() -> None:
    shapes = AskedShapes()
    for number in range(TABLE_VIEWS):
        for _ in range(2 + number):
            variant = asked(shapes, f"adhoc_{number}")
        shapes.keep(f"adhoc_{number}", variant, POSTS)
    hot = Variant("SELECT 1", reusable=True)
    for _ in range(OFTENER * 2):
        assert shapes.going(hot, POSTS) is None
        hot = asked(shapes, "hot")
    assert shapes.going(hot, POSTS) == ["adhoc_0"]
    for _ in range(6 * LATELY):
        asked(shapes, "something else")
    assert shapes.going(asked(shapes, "new"), POSTS) == ["adhoc_0"], "all of them were asked long ago"


def test_a_view_of_two_tables_takes_room_of_both() -> None:
    shapes = AskedShapes()
    both = POSTS | {"comments"}
    for number in range(TABLE_VIEWS):
        shapes.keep(f"adhoc_{number}", Variant("SELECT 1", reusable=True), both)
    variant = asked(shapes, "hot")
    assert shapes.going(variant, POSTS) == ["adhoc_0"]
    assert shapes.going(variant, both) == ["adhoc_0"]
