"""The routers, one for each noun of the API; each call is a few lines between HTTP and the deployment."""

from api.routes import (
    accounts,
    archive,
    live,
    live_socket,
    migrations,
    operations,
    snapshots,
    sql,
    tables,
    transactions,
    upstreams,
    views,
)

ROUTERS = (
    *(sql.router, views.router, live.router, live_socket.router, tables.router),
    *(transactions.router, snapshots.router, upstreams.router),
    *(migrations.router, operations.router, accounts.router, archive.router),
)
